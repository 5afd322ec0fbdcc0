"""Tests of the forms that change a slot, without JavaScript."""

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.conftest import PROFILE
from tests.serve.visitor import field_shows, slot_at, visited

TEXTS = st.lists(
    st.sampled_from(["\n", "\r\n", "\r", "\0", "\u2028", "x", " y"]), max_size=9
).map("".join)
ROUNDS = {"default": 4, "campaign": 300}[PROFILE]


@pytest.mark.requirement("serve-7")
@settings(
    max_examples=ROUNDS,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(texts=st.lists(TEXTS, min_size=4, max_size=4))
async def test_saving_an_untouched_text_changes_nothing(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("untouched")
    async with visited(folder) as (served, visitor):
        with served.memory() as memory:
            for index, text in enumerate(texts):
                slot = memory.slot(memory.create(f"slot_{index}", text).label)
                before = slot.read()
                page = await visitor.get(slot_at(slot.label, "edit"))
                saved = await visitor.send(page.form("/edit"))

                assert "Nothing was changed" in saved.text
                after = slot.read()
                assert (after.rev, after.content_hash) == (
                    before.rev,
                    before.content_hash,
                )


async def opened(visitor, *more):
    page = await visitor.get(slot_at("notes", *more))
    return page.form(f"/{more[0]}")


@pytest.mark.requirement("serve-8")
async def test_two_edits_of_one_slot_and_appends_meanwhile_all_stay(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory("cli") as memory:
            slot = memory.slot(memory.create("notes", "one\ntwo\nthree").label)
            first, second = await opened(visitor, "edit"), await opened(visitor, "edit")
            for number in range(5):
                slot.append(f"line {number}")
            saved = await visitor.send(first, content="ONE\ntwo\nthree")
            moved = await visitor.get(
                f"{slot_at('notes', 'edit')}?part=moved&base_rev=0"
            )
            again = await visitor.send(second, content="one\ntwo\nTHREE")
            lines = slot.read().content.split("\n")

            assert "merged with what others wrote" in saved.text
            assert "merged with what others wrote" in again.text
            assert "added: +" in again.text.replace("+added: ", "added: +")
            assert "saving merges. Written by: web:ana" in moved.text
            assert lines == ["ONE", "two", "THREE", *(f"line {n}" for n in range(5))]


@pytest.mark.requirement("serve-11")
async def test_a_form_sent_twice_writes_once(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory() as memory:
            memory.create("notes", "one")
            form = (await visitor.get(slot_at("notes"))).form("/append")
            for _ in range(2):
                page = await visitor.send(form, text="two\nthree")

            assert "Appended." in page.text
            assert memory.slot("notes").read().content == "one\ntwo\nthree"
            assert memory.slot("notes").history().entries[0].lane == "web:ana"


async def test_a_refused_text_stays_in_the_form(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory() as memory:
            slot = memory.slot(memory.create("notes", "one", size_limit=100).label)
            long = "x" * 101
            page = await visitor.send(
                await opened(visitor, "edit"), status=413, content=f"{long}\n<b>"
            )
            kept = page.form("/edit")

            assert "size-limit-exceeded" in page.text
            assert kept.fields["content"] == f"{long}\n<b>"
            assert slot.read().content == "one"
            saved = await visitor.send(kept, content="short")
            assert "Saved." in saved.text
            assert slot.read().content == "short"


async def test_a_base_that_is_no_longer_kept_is_told_and_the_text_stays(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory() as memory:
            slot = memory.slot(memory.create("notes", "one").label)
            form = await opened(visitor, "edit")
            for number in range(25):
                slot.replace(f"text {number}")
            for target in (None, slot_at("notes", "preview")):
                page = await visitor.send(
                    form, status=409, content="mine", action=target
                )

                assert "rev-not-kept" in page.text
                assert page.form("/edit").fields["content"] == "mine"
            done = await visitor.get(slot_at("notes?done=merged&base=0"))
            assert "The text from before is no longer kept." in done.text
            assert slot.read().content == "text 24"


async def test_a_preview_shows_both_differences_and_writes_nothing(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory() as memory:
            slot = memory.slot(memory.create("notes", "one\ntwo").label)
            form = await opened(visitor, "edit")
            preview = slot_at("notes", "preview")
            page = await visitor.send(form, content="one\nTWO", action=preview)
            assert "Against rev" not in page.text
            slot.append("three")
            page = await visitor.send(form, content="one\nTWO", action=preview)

            assert "removed: two" in page.text
            assert "added: TWO" in page.text
            assert "Against rev 1" in page.text
            assert "removed: three" in page.text
            assert page.form("/edit").fields["content"] == "one\nTWO"
            assert slot.read().rev == 1


async def test_a_new_slot_is_made_or_refused_with_what_was_typed(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        form = (await visitor.get("/p/desk/new")).form("/new")
        typed = {"label": "Not A Label", "content": "text\n", "scope": "global"}
        page = await visitor.send(form, status=400, **typed)
        kept = page.form("/new")

        assert "invalid-label" in page.text
        assert kept.fields["content"] == "text\n"
        assert kept.fields["scope"] == "global"
        page = await visitor.send(kept, status=400, label="label", scope="all")
        assert "invalid-scope" in page.text
        page = await visitor.send(kept, label="label", description="for <all>")
        assert "The slot is there." in page.text
        assert "for <all>" in page.text
        again = await visitor.send(form, label="other", content="", scope="project")
        assert "The slot is empty." in again.text
        with served.memory() as memory:
            assert memory.slot("label", "global").read().content == "text\n"


async def test_an_append_is_refused_with_what_was_typed(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory() as memory:
            memory.create("notes", "x" * 95, size_limit=100)
            form = await opened(visitor, "append")
            page = await visitor.send(form, status=413, text="much too long")

            assert page.form("/append").fields["text"] == "much too long"
            assert "size-limit-exceeded" in page.text
            assert memory.slot("notes").read().size == 95


async def test_a_text_for_a_slot_that_is_gone_is_shown_to_copy_from(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory() as memory:
            memory.create("notes", "one")
            typed = {"edit": "content", "append": "text"}
            forms = {name: await opened(visitor, name) for name in typed}
            memory.delete("notes")
        for name, field in typed.items():
            page = await visitor.send(forms[name], status=404, **{field: "mine <b>"})

            assert "slot-not-found" in page.text
            assert "mine &lt;b&gt;" in page.html


@pytest.mark.requirement("serve-11")
async def test_settings_that_changed_are_set_and_no_others(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory() as memory:
            slot = memory.slot(memory.create("notes", "one", description="a\nb").label)
            form = await opened(visitor, "settings")
            same = await visitor.send(form)
            assert "The settings are changed." in same.text
            assert slot.read().description == "a\nb"
            assert memory.audit(label="notes")[0].operation == "create"

            form = await opened(visitor, "settings")
            await visitor.send(
                form, description="c", size_limit="500", pinned=None, append_only="on"
            )
            view = slot.read()
            assert (view.description, view.size_limit) == ("c", 500)
            assert (view.pinned, view.append_only, view.read_only) == (
                False,
                True,
                False,
            )
            typed = {"description": "d", "size_limit": "many", "read_only": "on"}
            page = await visitor.send(form, status=400, pinned=None, **typed)
            assert "size_limit must be a number" in page.text
            kept = page.form("/settings").fields
            assert {n: kept[n] for n in typed} == typed
            assert "pinned" not in kept
            links = (await visitor.get(slot_at("notes"))).links
            assert slot_at("notes", "edit") not in links
            slot.set_meta(read_only=True)
            assert "Append lines" not in (await visitor.get(slot_at("notes"))).text


async def test_a_form_that_lacks_a_field_is_refused(tmp_path):
    async with visited(tmp_path) as (served, visitor):
        with served.memory() as memory:
            memory.create("notes", "one")
        form = await opened(visitor, "edit")
        page = await visitor.send(form, status=400, base_rev=None)

        assert "the form lacks base_rev" in page.text


def test_a_field_shows_what_browsers_show():
    assert field_shows("\n\r\na\rb\0") == "\na\nb\ufffd"
