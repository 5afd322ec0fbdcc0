"""Tests of search, memory sets, condense, status, activity, and a person's settings."""

import pytest

from crdtmem.errors import InvalidArgumentError
from crdtmem.mirror.mirror import Mirror
from crdtmem.models import UNSET
from crdtmem.serve.answers import Ask, Principal, html
from crdtmem.serve.markup import h
from crdtmem.serve.pages import layout
from crdtmem.serve.pages.layout import Visit, form, route, times
from crdtmem.serve.pages.places import lane_tag
from crdtmem.serve.pages.search import hits_shown
from crdtmem.serve.session import csrf_of
from crdtmem.sets.values import ItemConflict
from crdtmem.store.lease import Lease, lease_path_for
from crdtmem.store.link_status import save_notes
from crdtmem.store.links import add_alarm, add_link
from tests.serve.desk import FORM
from tests.serve.visitor import Visitor, quoted, slot_at, visited

NOBODY = Principal("", "", may_write=False)


@pytest.fixture
async def site(tmp_path):
    """Give the server, a visitor, and a memory of another lane."""
    async with visited(tmp_path) as (served, visitor):
        with served.memory("lane-a") as memory:
            yield served, visitor, memory


@pytest.mark.requirement("serve-11")
async def test_a_search_shows_where_the_words_are(site):
    _, visitor, memory = site
    memory.create("notes", "one\nthe <b>port</b> is 8790\n" + "filler " * 90)
    page = await visitor.get("/p/desk/search?q=port")

    assert slot_at("notes#L2") in page.links
    assert "<mark>port</mark>" in page.html
    assert "1 found" in page.text
    assert " …" in page.text
    nothing = await visitor.get("/p/desk/search?q=nowhere&sort=recent&mode=any")
    assert "Nothing was found." in nothing.text
    refused = await visitor.get("/p/desk/search?q=%22%22", status=400)
    assert "empty-query" in refused.text
    assert "found" not in (await visitor.get("/p/desk/search")).text


async def test_what_a_slot_held_is_found_and_leads_to_the_kept_text(site):
    _, visitor, memory = site
    memory.create("notes", "the port is 8790")
    memory.slot("notes").replace("gone", base_rev=0)
    entry = memory.slot("notes").history().entries[0]
    page = await visitor.get("/p/desk/search?q=port&kinds=history&label=notes")

    assert slot_at("notes", f"restore?id={entry.id}") in page.links


def condensed(memory):
    """Return the id of a pass that took a section out of a slot."""
    parts = [f"## part {n}\n" + f"word port {n}\n" * 20 for n in range(12)]
    slot = memory.slot(memory.create("journal", "".join(parts), size_limit=4_000).label)
    begun = slot.begin_condense(keep_sections=2, force=True)
    slot.commit_condense(begun.id, "All of it was about ports.")
    return begun.id


@pytest.mark.requirement("serve-11")
async def test_condense_shows_what_is_due_open_and_done(site):
    served, visitor, memory = site
    pass_id = condensed(memory)
    memory.create("long", "## a\nxxx\n" * 40, size_limit=400)
    begun = memory.slot("long").begin_condense(force=True)
    page = await visitor.get("/p/desk/condense")
    archive = await visitor.get(f"/p/desk/condense/archive?id={quoted(pass_id)}")

    assert "taken out 10" in page.text
    assert "committed" in page.text
    assert f"/p/desk/condense/archive?id={quoted(pass_id)}" in page.links
    assert "word port 0" in archive.text
    assert "evicted" in archive.text
    served.site.read_only = True
    assert "Abort" not in (await visitor.get("/p/desk/condense")).text
    served.site.read_only = False
    after = await visitor.send(page.form("/condense/abort"))
    assert "No pass is open." in after.text
    [ended] = memory.condense_passes(label="long", state="aborted")
    assert ended.id == begun.id
    found = await visitor.get("/p/desk/search?q=port&kinds=archive&label=journal")
    assert f"/p/desk/condense/archive?id={quoted(pass_id)}" in found.links
    assert "full" in after.text
    await visitor.get("/p/desk/condense/archive", status=400)


@pytest.fixture
def filled(site):
    """Give the address of a set, the set, and a visitor of it."""
    _, visitor, memory = site
    bound = memory.bind(partition_key=("job", "u1"))
    target = bound.memory_set("fa/c ts")
    target.add(["tea\r\nwith milk", "<i>x</i>"], [{"a": 1}, {}], ids=["a", "b"])
    key = quoted(bound.binding.encoded_key)
    return f"partition={key}&scope=project&set={quoted('fa/c ts')}", target, visitor


@pytest.mark.requirement("serve-11")
async def test_partitions_lead_to_sets_and_these_to_items(filled):
    where, target, visitor = filled
    partitions = await visitor.get("/p/desk/sets")
    [sets] = [to for to in partitions.links if "partition=" in to]
    listed = await visitor.get(sets)
    [items] = [to for to in listed.links if "set=" in to]
    page = await visitor.get(items)

    assert "l(s.job,s.u1)" in partitions.text
    assert f"2 of {target.headroom().item_limit:,} items" in listed.text
    assert "<i>x</i>" in page.text
    assert 'metadata {"a": 1}' in page.text
    found = await visitor.get(f"/p/desk/sets?{where}&q=milk")
    assert "1 found" in found.text
    assert "<mark>milk</mark>" in found.html


@pytest.mark.requirement("serve-11")
async def test_items_are_added_changed_deleted_and_brought_back(filled):
    where, target, visitor = filled
    page = await visitor.get(f"/p/desk/sets?{where}")
    added = await visitor.send(page.form("/add"), text="new", metadata='{"b": 2}')
    assert "new" in added.text
    item = await visitor.get(f"/p/desk/sets/item?{where}&id=a")
    await visitor.send(item.form("/update"), metadata="{}")
    [kept] = target.get(["a"]).items
    assert (kept.text, dict(kept.metadata)) == ("tea\r\nwith milk", {})
    stale = await visitor.send(
        item.form("/update"), status=409, text="mine", request_id="other"
    )
    assert stale.form("/update").fields["text"] == "mine"
    bad = await visitor.send(stale.form("/update"), status=400, metadata="[]")
    assert "metadata must be a JSON object" in bad.text

    history = await visitor.send(item.form("/delete"))
    assert not target.get(["a"]).items
    gone = await visitor.send(item.form("/update"), status=404, text="mine <b>")
    assert "item-not-found" in gone.text
    assert "mine &lt;b&gt;" in gone.html
    assert "Undo rev" in history.text.replace("\n", "") or history.forms
    back = await visitor.send(history.form("/undo"))
    assert "with milk" in back.text
    await visitor.get(f"/p/desk/sets/item?{where}&id=none", status=404)
    refused = await visitor.send(history.form("/undo"), status=400, rev="x")
    assert "rev must be a number" in refused.text
    refused = await visitor.send(page.form("/add"), status=400, metadata="{")
    assert refused.form("/add").fields["metadata"] == "{"


async def test_long_sets_and_histories_have_further_pages(filled):
    where, target, visitor = filled
    for start in range(0, 120, 60):
        target.add([f"item {n}" for n in range(start, start + 60)])
    page = await visitor.get(f"/p/desk/sets?{where}")
    [older] = [to for to in page.links if "cursor=" in to]
    assert "with milk" in (await visitor.get(older)).text
    history = await visitor.get(f"/p/desk/sets/history?{where}")
    [further] = [to for to in history.links if "before=" in to]

    assert "with milk" in (await visitor.get(further)).text


async def test_what_was_written_at_the_same_time_is_shown(filled, monkeypatch):
    where, target, visitor = filled
    page = target.get(["a"])
    twin = ItemConflict(
        text="coffee", metadata={"k": 1}, updated_at=page.items[0].updated_at, lane="z"
    )
    conflicted = page.items[0].replaced(conflicts=(twin,))
    shown = page.replaced(items=(conflicted,), warning="nearly full")
    monkeypatch.setattr(type(target), "get", lambda *_, **__: shown)
    listed = await visitor.get(f"/p/desk/sets?{where}")
    item = await visitor.get(f"/p/desk/sets/item?{where}&id=a")

    assert "written at the same time by z" in listed.text
    assert "⚠ nearly full" in listed.text
    assert "coffee" in item.text


def linked(memory, *, has_fault):
    """Link the project, and note how that went."""
    link = add_link(
        memory.store,
        namespace="desk",
        remote="theirs",
        url="wss://relay.example/<b>",
        token_file="",
        options={},
    )
    fault = {"code": "relay-unreachable", "message": "no <way>", "at_ms": 1}
    notes = {"state": "connected", "head": 3}
    notes |= {"fault": {**fault, "permanent": False}} if has_fault else {}
    save_notes(memory.store, {link.link: notes})
    return link


@pytest.mark.requirement("serve-11")
async def test_links_alarms_and_errors_are_shown_and_alarms_cleared(site):
    served, visitor, memory = site
    memory.create("notes", "one")
    memory.create("everywhere", "one", scope="global")
    link = linked(memory, has_fault=True)
    with memory.store.writing() as transaction:
        add_alarm(transaction, link.link, "relay-restored", "cursor <1>")
    page = await visitor.get("/p/desk/status")

    assert "relay-unreachable: no <way>" in page.text
    assert "cursor <1>" in page.text
    assert "1 alarm." in page.text
    assert "3 to come" in page.text
    slot = await visitor.get(slot_at("notes"))
    assert "writes not sent" in slot.text
    elsewhere = await visitor.get(slot_at("everywhere", scope="global"))
    assert "writes not sent" not in elsewhere.text
    served.site.read_only = True
    assert "Clear" not in (await visitor.get("/p/desk/status")).text
    served.site.read_only = False
    after = await visitor.send(page.form("/clear-alarms"))
    assert "cursor <1>" not in after.text
    assert memory.status().sync.links[0].alarms == ()


async def test_a_store_that_is_in_sync_says_so(site):
    _, visitor, memory = site
    link = linked(memory, has_fault=False)
    save_notes(memory.store, {link.link: {"state": "connected"}})
    lease = Lease(lease_path_for(memory.path))
    assert lease.take()
    page = await visitor.get("/p/desk/status")
    lease.release()

    assert "desk: in sync." in page.text
    assert "Synced by process" in page.text


@pytest.mark.requirement("serve-11")
async def test_mirrors_and_their_blocked_files_are_shown(site, tmp_path):
    _, visitor, memory = site
    folder = tmp_path / "<mirror>"
    folder.mkdir()
    memory.create("notes", "text")
    with Mirror(memory, folder) as mirror:
        mirror.sync_once()
        (folder / "notes.md").write_bytes(b"\xff\xfe\xff")
        mirror.sync_once()
    page = await visitor.get("/p/desk/status")

    assert str(folder) in page.text
    assert "notes.md" in page.text
    assert "No folder is mirrored." not in page.text


@pytest.mark.requirement("serve-11")
async def test_the_doctor_is_asked_and_a_repair_is_shown_first(site):
    _, visitor, memory = site
    memory.create("notes", "x" * 80, size_limit=100)
    for run in ("run", "deep"):
        page = await visitor.get(f"/p/desk/status?doctor={run}")
        assert "Nothing is wrong." in page.text
    assert "Findings" not in (await visitor.get("/p/desk/status?doctor=no")).text
    repair = await visitor.get("/p/desk/status/repair")
    done = await visitor.send(repair.form("/repair"))

    assert "Repaired" in done.text
    assert "80 % full" in page.text


@pytest.mark.requirement("serve-11")
async def test_activity_shows_changes_by_lane_and_slot(site):
    served, visitor, memory = site
    memory.create("notes", "one")
    with served.memory("lane-b") as other:
        other.slot("notes").append("two")
        other.bind(partition_key="k").memory_set("facts").add("x")
    page = await visitor.get("/p/desk/activity?lane=lane-b&label=notes")
    everything = await visitor.get("/p/desk/activity")

    assert "lane-a" not in page.text
    assert "append" in page.text
    assert "3 → 7" in page.text
    assert slot_at("notes") in everything.links
    for number in range(101):
        memory.slot("notes").replace(f"text {number}", base_rev=1 + number)
    full = await visitor.get("/p/desk/activity?label=notes")
    [older] = [to for to in full.links if "before=" in to]
    assert "create" in (await visitor.get(older)).text


@pytest.mark.requirement("serve-11")
async def test_a_person_chooses_name_keys_theme_and_project(site):
    served, visitor, memory = site
    memory.create("notes", "one")
    with served.memory(project="other") as other:
        other.create("far", "away")
    page = await visitor.get("/settings")
    renamed = await visitor.send(page.form("/settings"), name="eve", keys=None)
    assert "web:eve" in renamed.text
    refused = await visitor.send(page.form("/settings"), status=400, name=" ")
    assert "name must be" in refused.text
    assert (
        slot_at("far", project="other")
        in (await visitor.get("/open?project=other")).links
    )
    assert slot_at("far", project="other") in (await visitor.get("/p/other")).links

    theme = (await visitor.get(slot_at("notes"))).form("/theme")
    assert theme.fields["back"] == slot_at("notes")
    await visitor.send(theme)
    await visitor.send(theme, status=400, theme="pink")
    assert (await visitor.send(theme, back="//elsewhere.example")).path.endswith(
        "slots"
    )


async def test_somebody_with_a_token_has_keys_and_no_name(site):
    served, _, _ = site
    headers = {"content-type": FORM}
    body = b"request_id=abcdefgh&keys=on"
    reply = await served.ask("POST", "/settings", headers=headers, body=body)

    assert reply.status == 303
    assert "crdtmem_keys=on" in reply.headers["set-cookie"]


async def test_a_search_tells_what_it_could_not_do(site):
    served, _, memory = site
    memory.create("notes", "the port")
    found = memory.search("port")
    hit = found.hits[0].replaced(line=UNSET)
    ask = Ask("GET", "/", {}, {}, {}, b"", {}, NOBODY, "", served.site)
    result = found.replaced(hits=(hit,), more=True, semantic="partial", degraded=True)
    shown = str(h("div", None, hits_shown(Visit(ask, memory, ()), result)))

    assert "1 found, and there is more · by meaning, too: partial" in shown
    assert "the index is damaged" in shown
    assert "#L" not in shown


def test_a_lane_that_is_not_known_is_called_so():
    assert "unknown" in str(h("p", None, lane_tag(None)))
    assert times(None) is None


async def test_cookies_decide_theme_and_keys(site):
    served, visitor, _ = site
    for more, theme, keys in (
        ("crdtmem_theme=dark; crdtmem_keys=off", "dark", "off"),
        ("crdtmem_theme=pink", None, None),
        ("b@d=1; c d; crdtmem_theme=light", "light", None),
    ):
        page = await Visitor(served, f"{visitor.cookie}; {more}").get("/settings")
        root = page.elements[0][1]

        assert (root.get("data-theme"), root.get("data-keys")) == (theme, keys)


@pytest.fixture
def time_stands(monkeypatch):
    """Have no page made anew because its time is up."""
    monkeypatch.setattr(layout, "SERVE_KEPT_S", 1e9)


@pytest.mark.usefixtures("time_stands")
async def test_a_page_that_is_kept_is_never_older_than_the_last_write(site):
    served, visitor, memory = site
    memory.create("notes", "one")
    for number, write in enumerate(("elsewhere", "here", "elsewhere", "anew")):
        before = await visitor.get(slot_at("notes"))
        again = await visitor.get(slot_at("notes"))
        if write == "here":
            await visitor.send(again.form("/append"), text=f"line {number}")
        else:
            memory.slot("notes").append(f"line {number}")
        if write == "anew":
            # A new connection counts from the beginning, as the one before it did.
            await served.site.handles.close()
        after = await visitor.get(slot_at("notes"))

        assert f"line {number}" not in before.text + again.text
        assert f"line {number}" in after.text


@pytest.mark.requirement("serve-4")
@pytest.mark.requirement("serve-9")
@pytest.mark.usefixtures("time_stands")
async def test_no_two_answers_have_a_form_in_common(site):
    served, visitor, memory = site
    memory.create("notes", "one")
    other = Visitor(served, await served.sign_in())
    mine = [await visitor.get(slot_at("notes")) for _ in range(2)]
    others = await other.get(slot_at("notes"))

    for who, pages in ((visitor, mine), (other, [others])):
        sent = [f.fields for page in pages for f in page.forms if f.method == "post"]
        assert {f["csrf"] for f in sent} == {csrf_of(who.cookie.partition("=")[2])}
    for number, page in enumerate([*mine, mine[0]]):
        await visitor.send(page.form("/append"), text=f"line {number % 2}")
    await visitor.send(others.form("/append"), status=403)
    await other.send(others.form("/append"), text="line 2")
    assert memory.slot("notes").read().content == "one\nline 0\nline 1\nline 2"
    undo = (await visitor.get(slot_at("notes", "history"))).forms
    numbers = [f.fields["request_id"] for f in undo if "request_id" in f.fields]
    assert len(set(numbers)) == len(numbers) > 1


class Counted:
    """A page that is kept, and how often it was made."""

    def __init__(self, served):
        self.count = 0
        self.route = route("GET", "/p/{project}/x", self._made, ("q",), kept=True)
        self.ask = Ask(
            *("GET", "/p/desk/x", {"project": "desk"}, {}, {}, b"", {}),
            Principal("ana", "web:ana", may_write=True, session_id="1"),
            *("c" * 64, served.site),
        )

    def _made(self, visit):
        self.count += 1
        if "bad" in visit.ask.query:
            raise InvalidArgumentError("bad", "it is bad")
        return html(form(visit, "/x"))

    async def made(self, **otherwise):
        """Return how often it is made when it is asked for once more."""
        before = self.count
        await self.route.answer(self.ask._replace(**otherwise))
        return self.count - before


@pytest.fixture
def counted(site, time_stands):
    """Give a page that is kept."""
    return Counted(site[0])


async def test_a_page_is_made_once_for_all_for_whom_it_looks_the_same(
    site, counted, monkeypatch
):
    served, _, memory = site
    page, who = counted, counted.ask.principal
    assert await page.made() == 1
    for same in (
        {"csrf": "d" * 64},
        {"headers": {"cookie": "crdtmem_8790=secret", "user-agent": "x"}},
        {"principal": who._replace(session_id="2")},
    ):
        assert await page.made(**same) == 0, same
    for other in (
        {"query": {"q": "1"}},
        {"query": {"part": "slots"}},
        {"params": {"project": "desk", "label": "x"}},
        {"headers": {"cookie": "crdtmem_theme=dark"}},
        {"headers": {"cookie": "crdtmem_keys=off"}},
        {"principal": who._replace(lane="web:eve")},
        {"principal": who._replace(may_write=False)},
        {"principal": who._replace(session_id=None, token_id="t")},
    ):
        assert [await page.made(**other) for _ in range(2)] == [1, 0], other
    for name in ("editors_in", "presence_in"):
        told = [{"label": "notes", "scope": "project", "editors": []}]
        monkeypatch.setattr(served.site, name, lambda namespace, told=told: told)
        assert [await page.made() for _ in range(2)] == [1, 0], name
    assert await Counted(served).made() == 1
    memory.create("notes", "one")
    assert [await page.made() for _ in range(2)] == [1, 0]
    monkeypatch.setattr(layout, "SERVE_KEPT_S", 1e-9)
    assert [await page.made() for _ in range(2)] == [1, 1]


async def test_what_is_not_all_in_the_store_is_not_kept(counted):
    assert [await counted.made(query={"part": "sync"}) for _ in range(2)] == [1, 1]
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="it is bad"):
            await counted.made(query={"bad": "1"})
    assert counted.count == 4


@pytest.mark.parametrize("bound", ["SERVE_KEPT_BYTES", "SERVE_KEPT_MAX"])
async def test_pages_are_kept_within_bounds(counted, monkeypatch, bound):
    monkeypatch.setattr(layout, bound, 1)

    for _ in range(2):
        for q in ("one", "two"):
            assert await counted.made(query={"q": q}) == 1
