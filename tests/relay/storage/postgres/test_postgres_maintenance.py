"""relay.storage.postgres.maintenance: commands on a database, served or not."""

import pytest

from crdtmem.errors import (
    InvalidArgumentError,
    RelayFolderError,
    TokenNotFoundError,
)
from relay.storage.checking import NamespaceCheck
from relay.storage.postgres.maintenance import (
    add_token,
    check_log,
    end_token,
    tokens_of,
)
from tests.contracts.authors import DIGEST, SECRET, Author, token_row
from tests.postgres import PASSWORD

pytestmark = pytest.mark.postgres


async def test_a_token_is_made_listed_and_ended_while_the_relay_is_served(url, node):
    async with node() as storage:
        await add_token(url, token_row(), DIGEST)
        granted = await storage.grant("aaaaaaaaaa", SECRET, 1)
        listed = await tokens_of(url)
        await end_token(url, "aaaaaaaaaa", 7)
        ended = await storage.grant("aaaaaaaaaa", SECRET, 1)

    assert granted is not None
    assert (listed, ended) == ([token_row()], None)
    assert [row.revoked_ms for row in await tokens_of(url)] == [7]


async def test_a_token_may_be_made_before_there_is_a_relay(postgres, tmp_path):
    words = tmp_path / "words"
    words.write_text(PASSWORD, encoding="utf-8")
    name = postgres.new_name()
    bare = f"postgresql://root@127.0.0.1:{postgres.port}/{name}"
    for asked in (tokens_of(bare, password_file=words), check_log(postgres.url(name))):
        with pytest.raises(RelayFolderError, match=f"/{name} holds no relay"):
            await asked
    await add_token(bare, token_row(), DIGEST, password_file=words)

    assert await tokens_of(postgres.url(name)) == [token_row()]


async def test_a_token_that_means_nothing_or_is_there_or_not_is_refused(url):
    with pytest.raises(InvalidArgumentError, match="scope is empty"):
        await add_token(url, token_row(scopes=()), DIGEST)
    await add_token(url, token_row(), DIGEST)
    with pytest.raises(InvalidArgumentError, match="'aaaaaaaaaa' exists"):
        await add_token(url, token_row(pattern="*"), DIGEST)
    with pytest.raises(TokenNotFoundError, match="no token 'bbbbbbbbbb'"):
        await end_token(url, "bbbbbbbbbb", 7)

    assert await tokens_of(url) == [token_row()]


async def test_the_first_bad_place_of_each_log_is_named(url, node, postgres, name):
    async with node() as storage:
        for namespace in ("good", "bad"):
            author = await Author.join(storage, namespace)
            await author.write(1, 2, 3)
    sound = await check_log(url)
    postgres.sql(
        "UPDATE crdtmem.log SET payload = 'x' WHERE seq = 2 AND ns_no ="
        " (SELECT ns_no FROM crdtmem.ns WHERE name = 'bad')",
        name,
    )
    broken = await check_log(url)

    assert sound == [NamespaceCheck("bad", 3, 0), NamespaceCheck("good", 3, 0)]
    assert (broken[0].bad_seq, broken[1]) == (2, sound[1])
    assert broken[0].reason == "the record is not the one that its id names"
