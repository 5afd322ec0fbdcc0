"""Tests of the pages of a slot's history: diff, undo, restore, delete."""

import pytest

from tests.serve.visitor import slot_at, visited


@pytest.fixture
async def site(tmp_path):
    """Give a visitor, a slot of two lines by two lanes, and its memory."""
    async with visited(tmp_path) as (served, visitor):
        with served.memory("lane-a") as memory:
            memory.create("notes", "one")
            memory.slot("notes").append("two")
            yield visitor, memory.slot("notes"), memory


async def undo_form(visitor, which=0):
    page = await visitor.get(slot_at("notes", "history"))
    return [form for form in page.forms if form.action.endswith("/undo")][which]


@pytest.mark.requirement("serve-11")
async def test_the_history_shows_each_write_with_its_figures(site):
    visitor, slot, _ = site
    page = await visitor.get(slot_at("notes", "history"))
    entry = slot.history().entries[0]

    assert "append" in page.text
    assert "lane-a" in page.text
    assert "lane-a+4one" in page.text
    assert "Now at rev 1." in page.text
    assert slot_at("notes", f"restore?id={entry.id}") in page.links
    diff = await visitor.get(slot_at("notes", "diff?from=0&to=1"))
    assert "From rev 0 to rev 1: 1 line added, 0 removed" in diff.text
    assert "added: two" in diff.text


@pytest.mark.requirement("serve-10")
async def test_an_undo_after_anothers_append_asks_again_and_keeps_it(site):
    visitor, slot, memory = site
    form = await undo_form(visitor)
    slot.append("three")
    page = await visitor.send(form, status=409)

    assert "conflict" in page.text
    assert "added: three" in page.text
    assert slot.read().rev == 2
    done = await visitor.send(page.form("/undo"))
    assert "Undone." in done.text
    assert slot.read().content == "one\nthree"
    again = await visitor.send(form, status=409, request_id="other")
    assert "conflict" in again.text
    stale = again.form("/undo")
    refused = await visitor.send(stale, status=409)
    assert "already-undone" in refused.text
    assert "web:ana" in refused.text
    assert memory.slot("notes").read().content == "one\nthree"


@pytest.mark.requirement("serve-10")
async def test_an_older_text_is_shown_against_the_present_and_restored(site):
    visitor, slot, _ = site
    entry = slot.history().entries[0]
    page = await visitor.get(slot_at("notes", f"restore?id={entry.id}"))
    assert "removed: two" in page.text
    slot.append("three")
    moved = await visitor.send(page.form("/restore"), status=409)
    assert "removed: three" in moved.text
    assert slot.read().content == "one\ntwo\nthree"

    done = await visitor.send(moved.form("/restore"))
    assert "The older text is back." in done.text
    assert slot.read().content == "one"


@pytest.mark.requirement("serve-10")
async def test_a_slot_is_deleted_as_shown_and_an_undo_brings_it_back(site):
    visitor, slot, _ = site
    page = await visitor.get(slot_at("notes", "delete"))
    assert "removed: two" in page.text
    slot.append("three")
    moved = await visitor.send(page.form("/delete"), status=409)
    assert slot.read().content == "one\ntwo\nthree"

    listed = await visitor.send(moved.form("/delete"))
    assert slot_at("notes") not in listed.links
    gone = await visitor.get(slot_at("notes"), status=404)
    assert "This slot has been deleted." in gone.text
    entry = slot.history().entries[0]
    restore = await visitor.get(slot_at("notes", f"restore?id={entry.id}"))
    assert "added: three" in restore.text
    done = await visitor.send(await undo_form(visitor))
    assert "Undone." in done.text
    assert slot.read().content == "one\ntwo\nthree"


async def test_old_writes_are_on_further_pages(site):
    visitor, slot, memory = site
    memory.configure(history_keep=60)
    for number in range(55):
        slot.append(f"line {number}")
    page = await visitor.get(slot_at("notes", "history"))
    [older] = [to for to in page.links if "before=" in to]
    rest = await visitor.get(older)

    assert "Older writes" not in rest.text
    assert slot_at("notes", "diff?from=0&to=1") in rest.links
    assert page.text.count("append") == 50


async def test_an_undone_write_says_by_whom(site):
    visitor, slot, _ = site
    slot.undo()
    page = await visitor.get(slot_at("notes", "history"))

    assert "undone by lane-a" in page.text


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ("diff", 400),
        ("diff?from=0", 400),
        ("diff?from=x&to=1", 400),
        ("diff?from=0&to=7", 409),
        ("restore", 400),
        ("restore?id=none", 404),
    ],
)
async def test_what_is_not_kept_is_refused(site, more, status):
    visitor, _, _ = site
    page = await visitor.get(slot_at("notes", more), status=status)

    assert "To the slots" in page.text


async def test_equal_texts_have_no_difference(site):
    visitor, slot, _ = site
    page = await visitor.get(slot_at("notes", "diff?from=1&to=1"))
    assert "The texts are equal." in page.text
    slot.set_meta(size_limit=100_000)
    slot.replace("\n".join(f"{'y' * 5000} {n}" for n in range(5)))
    cut = await visitor.get(slot_at("notes", "diff?from=1&to=2"))

    assert "The rest is not shown." in cut.text
