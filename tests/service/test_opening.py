import math
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import crdtmem
from crdtmem.errors import CrdtmemError
from crdtmem.opening import open as open_memory, open_with


@pytest.fixture
def path(tmp_path):
    return tmp_path / "absent" / "store.db"


@pytest.mark.parametrize(
    ("options", "code", "argument"),
    [
        ({"lane": ""}, "invalid-lane", "lane"),
        ({"lane": "  "}, "invalid-lane", "lane"),
        ({"lane": 5}, "invalid-lane", "lane"),
        ({"lane": "a\x07b"}, "invalid-lane", "lane"),
        ({"lane": "x" * 129}, "invalid-lane", "lane"),
        ({"lane": "ü" * 65}, "invalid-lane", "lane"),
        ({"project": ""}, "invalid-argument", "project"),
        ({"project": "../x"}, "invalid-argument", "project"),
        ({"project": "-x"}, "invalid-argument", "project"),
        ({"project": "global"}, "invalid-argument", "project"),
        ({"project": "x" * 65}, "invalid-argument", "project"),
        ({"project": 5}, "invalid-argument", "project"),
        ({"durability": "fast"}, "invalid-argument", "durability"),
        ({"durability": None}, "invalid-argument", "durability"),
        ({"durability": ["full"]}, "invalid-argument", "durability"),
        ({"busy_timeout": -1}, "invalid-argument", "busy_timeout"),
        ({"busy_timeout": 600.5}, "invalid-argument", "busy_timeout"),
        ({"busy_timeout": math.nan}, "invalid-argument", "busy_timeout"),
        ({"busy_timeout": True}, "invalid-argument", "busy_timeout"),
        ({"busy_timeout": False}, "invalid-argument", "busy_timeout"),
        ({"busy_timeout": "5"}, "invalid-argument", "busy_timeout"),
        ({"busy_timeout": None}, "invalid-argument", "busy_timeout"),
        ({"read_only": "no"}, "invalid-argument", "read_only"),
        ({"create": None}, "invalid-argument", "create"),
    ],
)
@pytest.mark.requirement("P7")
def test_arguments_are_checked_before_anything_is_made(path, options, code, argument):
    with pytest.raises(CrdtmemError) as caught:
        open_memory(path, **{"lane": "a", "project": "p"} | options)

    assert (caught.value.code, caught.value.details["argument"]) == (code, argument)
    assert argument in caught.value.message
    assert not path.parent.exists()


@pytest.mark.parametrize("options", [{"create": False}, {"read_only": True}])
def test_an_absent_store_is_made_only_where_it_may_be(path, options):
    with pytest.raises(crdtmem.StoreNotFoundError) as caught:
        open_memory(path, lane="a", project="p", **options)

    assert str(path) in caught.value.message
    assert "crdtmem append" in caught.value.hint
    assert not path.parent.exists()


def test_a_store_is_made_at_the_first_opening(path):
    with open_memory(str(path), lane=" a ", project="p") as memory:
        assert (memory.lane, memory.path) == ("a", path)
        assert memory.status().durability == "full"
    assert path.stat().st_mode & 0o077 == 0


def test_an_opening_of_a_store_that_is_up_to_date_writes_nothing(path):
    open_memory(path, lane="a", project="p").close()
    before = path.read_bytes()

    with open_memory(path, lane="a", project="p", create=False) as memory:
        memory.slots(content=False)

    assert path.read_bytes() == before


def test_a_project_is_an_id_or_a_folder(path, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / ".crdtmem.toml").write_text(
        '[project]\nid = "from-file"\n', encoding="utf-8"
    )

    with open_memory(path, lane="a", project=Path(folder)) as memory:
        found = memory.project, memory.status().project_source
    with open_memory(path, lane="a", project="work") as memory:
        named = memory.project, memory.status().project_source

    assert found == ("from-file", "project file")
    assert named == ("work", "option")


def test_what_is_not_given_comes_from_the_settings(path, monkeypatch):
    monkeypatch.setenv("CRDTMEM_LANE", "of-the-environment")
    monkeypatch.setenv("CRDTMEM_STORE", str(path))
    monkeypatch.setenv("CRDTMEM_PROJECT", "q")

    with open_memory() as memory:
        assert (memory.lane, memory.path) == ("of-the-environment", path)
        assert (memory.project, memory.status().project_source) == ("q", "environment")


def test_a_clock_is_read_in_utc(path):
    moment = datetime(2026, 5, 4, 3, 2, 1, 9000, timezone(timedelta(hours=2)))

    with open_memory(path, lane="a", project="p", clock=lambda: moment) as memory:
        memory.create("t", "x")
        view = memory.slot("t").read()

    assert view.created_at == "2026-05-04T01:02:01.009Z"


def test_order_does_not_depend_on_the_clock(path):
    moments = iter(datetime(2026, 1, 1, tzinfo=UTC) - timedelta(n) for n in range(99))

    with open_memory(
        path, lane="a", project="p", clock=lambda: next(moments)
    ) as memory:
        memory.create("t")
        cursor = memory.cursor()
        for n in range(3):
            memory.slot("t").append(str(n))
        view = memory.slot("t").read()
        changes = memory.changes(cursor).changes
        revs = [e.rev for e in memory.slot("t").history().entries]

    assert (view.content, view.rev, revs) == ("0\n1\n2", 3, [2, 1, 0])
    assert [(c.since_rev, c.rev) for c in changes] == [(0, 3)]


def test_settings_can_be_handed_over_resolved(path):
    from crdtmem.config import load_config  # noqa: PLC0415 - as a front end does it

    options = {"store": path, "lane": "a", "project": "p", "durability": "normal"}
    with open_with(load_config(options=options)) as memory:
        assert memory.slot("persona").append("x").durable is False


def test_the_public_name_is_this_one():
    assert crdtmem.open is open_memory
