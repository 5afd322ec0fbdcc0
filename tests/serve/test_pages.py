"""Tests of what all pages have in common, and of the slots that they show."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from crdtmem.serve.answers import Ask, HttpError, Principal
from crdtmem.serve.pages import error_page
from crdtmem.serve.pages.layout import ago, seconds_since
from tests.serve.desk import READ, WRITE, desk, token_file
from tests.serve.visitor import Page, quoted, slot_at, visited

HOSTILE = (
    "<script>document.title='x'</script>\n"
    '"><img src=x onerror=alert(1)>\n'
    "</textarea></title></style>\n"
    "\x1b[31mred\x1b[0m \u202eevil\u202c \U000e0041\u200b\n"
    "https://elsewhere.example/ **bold** &amp;\r\n"
)
OTHERS = ("edit", "history", "settings", "delete", "append")


def seed(memory):
    """Write something of everything, all of it hostile."""
    memory.create("notes", HOSTILE, description=HOSTILE.replace("\n", " "))
    memory.slot("notes").append(HOSTILE)
    bound = memory.bind(partition_key=("job", HOSTILE[:40]))
    bound.memory_set(HOSTILE[:8]).add([HOSTILE], [{"<b>": HOSTILE}], ids=["<i>"])
    return bound.binding.encoded_key


async def crawl(visitor, start="/"):
    """Return every page that links lead to, by its path."""
    found, left = {}, [start]
    while left:
        path = left.pop().partition("#")[0]
        if path in found:
            continue
        found[path] = await visitor.get(path)
        left += [to for to in found[path].links if to.startswith("/")]
    return found


@pytest.mark.requirement("serve-6")
@pytest.mark.requirement("serve-11")
async def test_every_page_is_reached_by_links_and_hostile_text_is_only_text(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory("<b>lane\u202e") as memory:
            seed(memory)
        found = await crawl(visitor)

        names = {re.sub(r"\?.*", "", path).removeprefix("/p/desk") for path in found}
        for name in (
            "slots",
            "search",
            "sets",
            "condense",
            "status",
            "activity",
            "new",
        ):
            assert f"/{name}" in names
        assert {"/sets/item", "/sets/history", "/status/repair", "/settings"} <= names
        for more in OTHERS[:4]:
            assert f"/slots/project/notes/{more}" in names
        for path, page in found.items():
            check_harmless(page, path)
        assert "<script>document.title" in found[slot_at("notes")].text


def check_harmless(page, path):
    tags = [tag for tag, _ in page.elements]
    assert "img" not in tags, path
    assert "i" not in tags, path
    assert tags.count("script") == 1, path
    assert tags.count("h1") == 1, path
    for _, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), path
            if name in ("href", "src", "action", "formaction"):
                assert re.match(r"/(?!/)|#", value), (path, value)
    for char in "\x1b\u202e\U000e0041\u200b":
        # A field holds its text as it is: it could not be saved otherwise.
        fields = r'<textarea.*?</textarea>|value=".*?"'
        shown = re.sub(fields, "", page.html, flags=re.DOTALL)
        assert char not in shown, path
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids)), path
    labels = {a["for"] for tag, a in page.elements if tag == "label"}
    for tag, attributes in page.elements:
        is_seen = tag in ("input", "select", "textarea")
        if is_seen and attributes.get("type") != "hidden":
            assert attributes["id"] in labels, (path, attributes)


@pytest.mark.requirement("serve-11")
async def test_the_list_shows_the_figures_of_the_verbs(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory("lane-b") as memory:
            memory.create("full", "x" * 91, size_limit=100)
            memory.create("big", "y" * 50, description="")
            memory.slot("big").set_meta(read_only=True, append_only=True)
            views = {view.label: view for view in memory.slots(content=False)}
            page = await visitor.get("/p/desk/slots?sort=used")
            meters = [a for tag, a in page.elements if tag == "meter"]

            assert len(meters) == len(views)
            assert (meters[0]["value"], meters[0]["max"]) == ("91", "100")
            assert (
                f"{views['full'].pct_used} % · {views['full'].free} free" in page.text
            )
            assert "⚠ compact it now" in page.text
            assert "lane-b" in page.text
            assert "read only append only" in page.text
            assert "not written yet" in page.text
            one = await visitor.get(slot_at("full"))
            assert views["full"].warning in one.text
            changed = await visitor.get("/p/desk/slots?sort=changed")
            assert changed.text.index("big") < changed.text.index("full")


@pytest.mark.requirement("serve-11")
async def test_a_slot_shows_its_text_with_authors_and_its_figures(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory("lane-b") as memory:
            memory.create("notes", "first\nsecond")
            view = memory.slot("notes").read()
        with served.memory("lane-a") as memory:
            memory.slot("notes").append("third")
            view = memory.slot("notes").read()
        page = await visitor.get(slot_at("notes"))

        assert f"rev {view.rev} · {view.size} of 2,000 units" in page.text
        assert view.content_hash in page.text
        assert page.text.index("lane-b") < page.text.index("second")
        assert page.text.index("second") < page.text.index("lane-a")
        assert "lane-a writing, lane-b writing" in page.text
        bare = await visitor.get(slot_at("notes?blame=off"))
        assert "lane hue" not in bare.html


async def test_long_texts_are_shown_in_pages_and_long_lines_cut(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory() as memory:
            text = "\n".join([*map(str, range(1, 2100)), "z" * 5000])
            memory.create("long", text, size_limit=100_000)
        first = await visitor.get(slot_at("long"))
        last = await visitor.get(slot_at("long?page=2"))
        whole = await visitor.get(slot_at("long?line=2100"))

        assert 'id="L2000"' in first.html
        assert 'id="L2001"' not in first.html
        assert slot_at("long?page=2") in first.links
        assert "lines 2,001 to 2,100 of 2,100" in last.text
        assert "… all 5,000 units" in last.text
        assert "z" * 4001 not in last.text
        assert "z" * 5000 in whole.text
        assert slot_at("long?page=2") in whole.links
        assert slot_at("long?page=1") in last.links
        assert 'class="row"' not in (await visitor.get(slot_at("long?page=9"))).html
        assert (await visitor.get(slot_at("long?line=x"), status=400)).status == 400


async def test_a_part_of_a_page_is_that_part_alone(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory() as memory:
            memory.create("notes", "text")
        part = await visitor.get(slot_at("notes?part=text"))
        sync = await visitor.get("/p/desk/slots?part=sync")

        assert part.html.startswith('<div data-part="text" data-on="change"')
        assert "none, this store only" in sync.text
        wrong = await visitor.get("/p/desk/slots?part=none", status=400)
        assert "this page has no part 'none'" in wrong.text


async def test_who_edits_a_slot_and_what_waits_is_shown(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory() as memory:
            memory.create("notes", "text")
        state = {
            "label": "notes",
            "scope": "project",
            "editors": [{"lane": "yjs:ana", "since": "2026-01-01T00:00:00.000Z"}],
            "unfolded": 40,
            "blocked": "size-limit-exceeded",
        }
        served.site.editors_in = lambda namespace: [state] * (namespace == "desk")

        away = {"lane": "bob<", "replica": "0f", "slot": "notes", "doing": "editing"}
        served.site.presence_in = lambda namespace: (
            [away, away | {"slot": "none"}] * (namespace == "desk")
        )

        assert "✎ yjs:ana editing" in (await visitor.get("/p/desk/slots")).text
        status = (await visitor.get("/p/desk/status")).text
        assert "yjs:ananotesediting" in status
        assert "bob<notesediting, in another store" in status
        page = await visitor.get(slot_at("notes"))
        who = "other writing, yjs:ana (editor), bob< editing (elsewhere)"
        assert f"Online{who}" in page.text
        assert "Text of editors is not in the slot yet." in page.text
        assert "size-limit-exceeded" in page.text
        state |= {"unfolded": 0, "blocked": None}
        calm = await visitor.get(slot_at("notes"))
        assert "Pending" not in calm.text


async def test_texts_that_editors_could_not_write_are_there_to_copy(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory() as memory:
            memory.create("notes", "text")
            with memory.store.writing() as transaction:
                transaction.connection.execute(
                    "INSERT INTO editor_rescue"
                    " VALUES (NULL, 'desk', 'notes', 'yjs:ana', 1, '<b>x\u202e\r\ny')"
                )
        page = await visitor.get(slot_at("notes"))

        assert "Rescued texts of editors" in page.text
        assert "yjs:ana" in page.text
        assert "<b>x\\u{202E}␍" in page.text


async def test_a_damaged_slot_says_so(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory() as memory:
            memory.create("notes", "text")
            with memory.store.writing() as transaction:
                transaction.connection.execute(
                    "UPDATE slot SET quarantined = 'damaged' WHERE label = 'notes'"
                )

        assert "damaged: see Status" in (await visitor.get("/p/desk/slots")).text
        assert "This slot is damaged" in (await visitor.get(slot_at("notes"))).text


async def test_a_reader_is_offered_no_form_that_writes(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory() as memory:
            memory.create("notes", "one")
            memory.slot("notes").append("two")
            key = seed_set(memory)
        served.site.read_only = True
        where = f"partition={quoted(key)}&set=facts"
        for path in (
            "/p/desk/slots",
            slot_at("notes"),
            slot_at("notes", "history"),
            f"/p/desk/sets?{where}",
            f"/p/desk/sets/item?{where}&id=a",
            f"/p/desk/sets/history?{where}",
            "/p/desk/status",
            "/p/desk/status/repair",
            "/p/desk/condense",
        ):
            page = await visitor.get(path)
            actions = {f.action for f in page.forms if f.method == "post"}
            assert actions == {"/theme", "/logout"}, path
            assert "Read only" in page.text
        changes = [
            slot_at("notes", n) for n in ("edit", "append", "settings", "delete")
        ]
        for path in ("/p/desk/new", *changes):
            page = await visitor.get(path, status=403)
            assert "store-read-only" in page.text


def seed_set(memory):
    bound = memory.bind(partition_key="k")
    bound.memory_set("facts").add(["tea"], ids=["a"])
    return bound.binding.encoded_key


async def test_a_reading_token_sees_pages_and_cannot_write(tmp_path):
    options = {"token_file": token_file(tmp_path)}
    async with desk(tmp_path, options=options, parts=None) as served:
        with served.memory() as memory:
            memory.create("notes", "one")
    async with visited(tmp_path, options=options) as (served, _):
        reply = await served.ask("GET", slot_at("notes"), token=READ)
        page = Page(reply.body.decode())

        assert page.forms[-1].action == "/theme"
        writer = await served.ask("GET", "/settings", token=WRITE)
        assert "Your name" not in writer.body.decode()


@pytest.mark.parametrize(
    ("status", "title"),
    [(401, "Sign in"), (404, "There is no such page"), (418, "This did not work")],
)
async def test_a_refusal_shows_code_sentence_and_hint(tmp_path, status, title):
    async with visited(tmp_path) as (served, visitor):
        error = HttpError(status, "some-code", "a <sentence>", hint="do this")
        page = await visitor.get("/settings")
        ask = Turned(visitor).ask(served)
        refused = Page(error_page(ask, error).body.decode())

        assert title in refused.text
        assert "a <sentence>" in refused.text
        assert ("some-code" in refused.text) == (status != 401)
        assert ("do this" in refused.text) == (status != 401)
        assert ("crdtmem serve --url" in refused.text) == (status == 401)
        assert page.status == 200


class Turned:
    """A request as it is before anybody has been let in."""

    def __init__(self, visitor):
        self.visitor = visitor

    def ask(self, served):
        nobody = Principal("", "", may_write=False)
        headers = {"cookie": "crdtmem_theme=dark; crdtmem_keys=off"}
        return Ask("GET", "/", {}, {}, {}, b"", headers, nobody, "", served.site)


async def test_a_page_that_is_not_there_says_so(tmp_path):
    async with visited(tmp_path) as (_, visitor):
        for path in ("/nowhere", slot_at("none"), "/p/desk/slots/other/notes"):
            page = await visitor.get(path, status=400 if "other" in path else 404)
            assert "To the slots" in page.text
            assert "Nothing was written." not in page.text


async def test_times_are_told_in_words():
    now = datetime.now(UTC)
    told = {
        age_s: str(ago((now - timedelta(seconds=age_s)).isoformat()))
        for age_s in (-5, 5, 120, 7_300, 200_000)
    }

    assert ">0 s ago<" in told[-5]
    assert re.search(r">[5-9] s ago<", told[5])
    assert ">2 min ago<" in told[120]
    assert ">2 h ago<" in told[7_300]
    assert " UTC<" in told[200_000]
    assert ago(None) == "never"
    assert seconds_since((now + timedelta(hours=1)).isoformat()) == 0.0
