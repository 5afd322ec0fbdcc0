"""The document of a slot's editors: which one it is, and when another begins."""

import apsw
import pytest
from pycrdt import Doc, Text

from crdtmem.doc.editor_doc import EditorDoc
from crdtmem.errors import (
    OtherIncarnationError,
)
from crdtmem.gateway import Accepted, Offer
from crdtmem.protocol.codec import write_str, write_uint
from crdtmem.store.editors import add_editor_row, find_editor_doc
from tests.conftest import PROFILE
from tests.serve.editing import Editor, changed_text, rescued, settled

ROUNDS = {"default": 2, "campaign": 200}[PROFILE]


@pytest.fixture
def editing(memory):
    memory.create("plan", "one\ntwo")
    return memory.editing("plan", "project")


def rows(memory, statement):
    with memory.store.reading() as connection:
        return connection.execute(statement).fetchall()


def damage(memory, statement):
    connection = apsw.Connection(str(memory.path))
    connection.execute(statement)
    connection.close()


@pytest.mark.requirement("serve-19")
def test_an_editor_of_another_document_changes_nothing_and_its_text_is_kept(
    memory, editing
):
    other = EditorDoc.make(gid=9, anchor=(1 << 33), incarnation="e" * 32, text="x\n")
    update = other.diff(editing.state_vector())

    for _ in range(2):
        found = editing.accept([Offer("yjs:ana", update, is_first=True)])
        assert found == [Accepted(None, "other-incarnation")]

    assert rescued(memory) == ["x\n"]
    assert changed_text(memory) == "one\ntwo"
    # What cannot be read whole is not kept.
    cut = other.diff(other.state_vector()) + b"\0"
    assert editing.accept([Offer("yjs:ana", cut)])[0].n is None


@pytest.mark.requirement("serve-19")
def test_a_copied_store_folds_what_was_typed_and_begins_another_document(
    memory, open_lane, editing
):
    ana = Editor(editing)
    ana.type("typed")
    ana.send()
    copy_of(memory)

    other = open_lane("a", store="copy").editing("plan", "project")

    assert other.incarnation != editing.incarnation
    assert str(Editor(other)) == "one\ntwo\ntyped\n"
    update = ana.doc.get_update(other.state_vector())
    found = other.accept([Offer("yjs:ana", update, is_first=True)])
    assert found[0].code == "other-incarnation"
    assert str(Editor(editing)) == "one\ntwo\ntyped"


def copy_of(memory):
    folder = memory.path.parent.parent / "copy"
    folder.mkdir(mode=0o700)
    memory.backup(folder / "store.db")


def test_what_a_copy_cannot_fold_is_kept_to_copy_from(memory, open_lane, editing):
    ana = Editor(editing)
    ana.type("typed")
    ana.send()
    memory.slot("plan").set_meta(read_only=True)
    copy_of(memory)

    other = open_lane("a", store="copy")
    other.editing("plan", "project")

    assert rescued(other) == ["one\ntwo\ntyped"]


@pytest.mark.requirement("serve-19")
def test_after_a_reboot_the_document_goes_on_under_another_id(memory, editing):
    ana = Editor(editing)
    before = rows(memory, "SELECT gid FROM editor_doc")
    damage(memory, "UPDATE store SET context = 'before the reboot'")
    ana.type("typed")
    assert ana.send().code == ""

    assert settled(editing, ana).blocked is None

    assert rows(memory, "SELECT gid FROM editor_doc") != before
    again = memory.editing("plan", "project")
    assert again.incarnation == editing.incarnation
    damage(memory, "UPDATE editor_doc SET replica = x'00'")
    assert memory.editing("plan", "project").incarnation == editing.incarnation


@pytest.mark.requirement("serve-19")
def test_typing_before_the_first_sync_is_there_once(memory, editing):
    early = Editor(editing)
    early.doc = Doc(client_id=99_000)
    early.text = early.doc.get("content", type=Text)
    early.type("early")
    assert early.send(is_first=True).code == ""

    settled(editing, early)

    assert str(early) == "one\ntwo\nearly\n"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE editor_doc SET state = x'0000'",
        "UPDATE editor_log SET delta = '[]'",
        "DELETE FROM editor_log",
    ],
)
def test_a_damaged_document_is_put_away_and_another_one_begins(
    memory, editing, statement
):
    ana = Editor(editing)
    ana.type("x")
    ana.send()
    damage(memory, statement)

    again = memory.editing("plan", "project")

    assert again.incarnation != editing.incarnation
    assert rows(memory, "SELECT DISTINCT code FROM quarantine") == [("editor-damaged",)]
    with pytest.raises(OtherIncarnationError):
        editing.fold()


def test_a_text_that_differs_from_its_rows_is_damage(memory, editing):
    ana = Editor(editing)
    ana.type("x")
    ana.send()
    with memory.store.writing() as tx:
        row = tx.connection.execute("SELECT content FROM editor_log").get
        tx.connection.execute("DELETE FROM editor_log")
        tx.connection.execute("UPDATE editor_doc SET n = 0")
        found = find_editor_doc(tx.connection, memory.project, "plan")
        assert found is not None
        add_editor_row(tx, found, lane="x", content=row, delta=())

    again = memory.editing("plan", "project")

    assert again.incarnation != editing.incarnation


def test_a_worn_out_document_is_replaced_when_nobody_has_typed_for_a_day(
    memory, editing, monkeypatch
):
    ana = Editor(editing)
    ana.type("x")
    settled(editing, ana)
    monkeypatch.setattr("crdtmem.gateway.EDITOR_RETIRE_BYTES", 10)
    assert memory.editing("plan", "project").incarnation == editing.incarnation
    damage(memory, "UPDATE editor_doc SET touched_ms = -" + "9" * 12)
    monkeypatch.setattr("crdtmem.gateway.EDITOR_RETIRE_TEXTS", 1)

    again = memory.editing("plan", "project")

    assert again.incarnation != editing.incarnation
    assert str(Editor(again)) == "one\ntwo\nx\n"


@pytest.mark.requirement("serve-21")
def test_another_document_with_more_than_text_is_not_kept(memory, editing):
    entry = b"\x28\1" + write_str("crdtmem") + write_str("incarnation") + b"\1\x7e"
    other = b"".join(map(write_uint, (2, 1, 1 << 33, 0))) + entry
    other += b"".join(map(write_uint, (1, 80_000, 0, 4, 1)))
    other += write_str("else") + write_str("x") + b"\0"

    assert editing.accept([Offer("yjs:x", other)])[0].code == "other-incarnation"
    assert rescued(memory) == []
