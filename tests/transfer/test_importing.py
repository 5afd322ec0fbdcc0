import io
import json
import re

import pytest
from hypothesis import given, settings, strategies as st

import crdtmem
from crdtmem.errors import ImportRefusedError, InvalidArgumentError
from crdtmem.headroom import content_hash
from tests.conformance.slots import rows_of
from tests.replica import exchange_records


@pytest.fixture
def here(tmp_path):
    with crdtmem.open(tmp_path / "here" / "s.db", lane="a", project="p") as memory:
        yield memory


@pytest.fixture
def there(tmp_path):
    with crdtmem.open(tmp_path / "there" / "s.db", lane="b", project="q") as memory:
        yield memory


def exported(memory, **choice):
    stream = io.StringIO()
    memory.export(stream, **choice)
    return stream.getvalue()


def take(memory, text, **options):
    return memory.import_(io.StringIO(text), **options)


def actions_of(report):
    return [(s.label, s.action, s.code or None) for s in report.slots]


def read(memory, label="t"):
    view = memory.slot(label).read()
    return view.content, view.rev


def related(here, there):
    """Give both a slot t with one kept text, v1, and the text v1, v2 in ``here``."""
    there.create("t", "v1")
    take(here, exported(there))
    here.slot("t").append("v2")


def test_an_absent_slot_is_created_with_settings_and_restorable_past(here, there):
    there.create("t", "v1", size_limit=99, description="d", pinned=False)
    there.slot("t").append("v2")
    there.slot("t").append("v3")

    report = take(here, exported(there))

    assert actions_of(report) == [("t", "created", None)]
    view = here.slot("t").read()
    assert (view.content, view.rev) == ("v1\nv2\nv3", 2)
    assert (view.size_limit, view.description, view.pinned) == (99, "d", False)
    history = here.slot("t").history().entries
    assert [(e.rev, e.operation, e.lane, e.undoable) for e in history] == [
        (1, "append", "b", False),
        (0, "append", "b", False),
    ]
    assert [e.at for e in history] == [e.at for e in there.slot("t").history().entries]
    restored = here.slot("t").restore(history[1].id, expected_rev=2)
    assert (restored.content, restored.rev) == ("v1", 3)


def test_a_long_past_is_kept_as_far_as_the_store_keeps_any(here, there):
    there.create("t", "0")
    for number in range(1, 6):
        there.slot("t").append(str(number))
    here.configure(history_keep=2)

    take(here, exported(there))

    assert [e.rev for e in here.slot("t").history().entries] == [4, 3]
    assert here.slot("t").read().rev == 5
    assert here.slot("t").append("6").rev == 6
    assert [e.rev for e in here.slot("t").history().entries] == [5, 4]


def test_permissions_and_an_excess_come_with_a_created_slot(here, there):
    there.create("ro", "x" * 50, read_only=True)
    there.create("ao", "y", append_only=True)
    there.slot("ro").set_meta(size_limit=10)

    take(here, exported(there))

    ro, ao = here.slot("ro").read(), here.slot("ao").read()
    assert (ro.read_only, ro.append_only, ro.free, ro.pct_used) == (True, False, 0, 500)
    assert (ao.read_only, ao.append_only) == (False, True)


def test_a_deleted_slot_comes_as_a_deleted_slot(here, there):
    there.create("t", "v1")
    there.delete("t")

    take(here, exported(there))

    with pytest.raises(LookupError):
        here.slot("t").read()
    (entry,) = here.slot("t").history().entries
    assert (entry.operation, entry.preview) == ("delete", "v1")
    assert here.slot("t").restore(entry.id, expected_rev=1).content == "v1"


def test_the_same_text_is_left_alone(here, there):
    related(here, there)
    there.slot("t").append("v2")
    before = rows_of(here.path)

    report = take(here, exported(there))

    assert actions_of(report) == [("t", "same", None)]
    assert rows_of(here.path) == before


def test_a_text_of_our_past_is_older_and_rolls_nothing_back(here, there):
    related(here, there)

    report = take(here, exported(there))

    assert actions_of(report) == [("t", "older", None)]
    assert read(here) == ("v1\nv2", 1)


def test_a_text_that_has_ours_in_its_past_updates_it(here, there):
    there.create("t", "v1")
    take(here, exported(there))
    there.slot("t").replace("new\nv1")

    report = take(here, exported(there))

    assert actions_of(report) == [("t", "updated", None)]
    assert read(here) == ("new\nv1", 1)
    (entry,) = here.slot("t").history().entries
    assert (entry.operation, entry.lane, entry.preview) == ("import", "a", "v1")
    assert here.slot("t").undo(entry.id).content == "v1"


def test_a_deletion_that_has_our_text_in_its_past_is_taken_too(here, there):
    there.create("t", "v1")
    take(here, exported(there))
    there.delete("t")

    report = take(here, exported(there))

    assert actions_of(report) == [("t", "updated", None)]
    with pytest.raises(LookupError):
        here.slot("t").read()


def test_changes_on_both_sides_of_a_common_text_are_merged(here, there):
    related(here, there)
    there.slot("t").insert(0, "theirs")
    there.slot("t").append("more")

    report = take(here, exported(there))

    assert actions_of(report) == [("t", "merged", None)]
    content, rev = read(here)
    assert (sorted(content.split("\n")), rev) == (["more", "theirs", "v1", "v2"], 2)
    assert content.startswith("theirs\nv1\n")


def test_a_merge_that_finds_nothing_new_writes_nothing(here, there):
    there.create("t", "a\nb\nc")
    take(here, exported(there))
    here.slot("t").replace("a\nc\nours")
    there.slot("t").replace("a\nc")
    before = rows_of(here.path)

    report = take(here, exported(there))

    assert actions_of(report) == [("t", "merged", None)]
    assert rows_of(here.path) == before


def test_unrelated_texts_are_a_conflict_and_stay(here, there):
    here.create("t", "ours")
    there.create("t", "theirs")
    before = rows_of(here.path)

    report = take(here, exported(there))

    assert actions_of(report) == [("t", "conflict", None)]
    assert rows_of(here.path) == before


def test_a_conflict_can_keep_both_texts(here, there):
    here.create("t", "ours")
    there.create("t", "theirs")

    report = take(here, exported(there), on_conflict="append")

    assert actions_of(report) == [("t", "conflict", None)]
    content, rev = read(here)
    assert rev == 1
    assert re.fullmatch(
        r"ours\n\[imported \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\]\ntheirs", content
    )


def test_a_conflict_can_take_theirs_and_keep_ours_in_the_history(here, there):
    here.create("t", "ours")
    there.create("t", "theirs")

    take(here, exported(there), on_conflict="replace")

    assert read(here) == ("theirs", 1)
    assert here.slot("t").history().entries[0].preview == "ours"


def test_a_conflict_with_a_deleted_slot_appends_nothing(here, there):
    here.create("t", "ours")
    there.create("t", "theirs")
    there.delete("t")

    take(here, exported(there), on_conflict="append")

    assert read(here) == ("ours", 0)


def test_a_slot_that_was_deleted_here_stays_so_unless_it_is_to_be_revived(here, there):
    there.create("t", "v1")
    text = exported(there)
    take(here, text)
    here.delete("t")

    first = take(here, text)
    second = take(here, text, revive=True)

    assert actions_of(first) == [("t", "deleted-here", None)]
    assert actions_of(second) == [("t", "updated", None)]
    assert read(here) == ("v1", 2)


@pytest.mark.parametrize(
    ("meta", "options", "code"),
    [
        ({"read_only": True}, {"on_conflict": "append"}, "slot-read-only"),
        ({"append_only": True}, {"on_conflict": "replace"}, "slot-append-only"),
        ({"size_limit": 9}, {"on_conflict": "append"}, "size-limit-exceeded"),
        ({"size_limit": 9}, {"on_conflict": "replace"}, "size-limit-exceeded"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_slot_that_refuses_is_reported_and_the_others_go_on(
    here, there, meta, options, code, dry_run
):
    here.create("t", "ours")
    here.slot("t").set_meta(**meta)
    there.create("t", "theirs, longer")
    there.create("u", "x")

    report = take(here, exported(there), dry_run=dry_run, **options)

    assert actions_of(report) == [("t", "refused", code), ("u", "created", None)]
    assert read(here) == ("ours", 0)


def test_an_append_only_slot_takes_a_conflict_at_its_end(here, there):
    here.create("t", "ours", append_only=True)
    there.create("t", "theirs")

    take(here, exported(there), on_conflict="append")

    assert read(here)[0].endswith("\ntheirs")


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_quarantined_slot_refuses_and_the_others_go_on(here, there, dry_run):
    here.create("t", "ours")
    with here.store.writing() as transaction:
        transaction.connection.execute("UPDATE slot SET quarantined = 'for a test'")
    there.create("t", "theirs")
    there.create("u", "x")

    report = take(here, exported(there), on_conflict="replace", dry_run=dry_run)

    assert actions_of(report) == [
        ("t", "refused", "slot-quarantined"),
        ("u", "created", None),
    ]


@pytest.mark.requirement("P7")
@pytest.mark.parametrize("on_conflict", ["report", "append", "replace"])
def test_a_second_import_of_one_source_writes_nothing(here, there, on_conflict):
    here.create("t", "ours")
    here.create("gone", "x")
    here.delete("gone")
    there.create("t", "theirs")
    there.create("u", "x")
    text = exported(there)
    first = take(here, text, on_conflict=on_conflict)
    before = rows_of(here.path)

    second = take(here, text, on_conflict=on_conflict)

    assert actions_of(first)[1] == ("u", "created", None)
    assert actions_of(second)[1] == ("u", "same", None)
    assert rows_of(here.path) == before


def test_two_replicas_that_import_one_source_hold_one_copy(here, tmp_path):
    source = tmp_path / "f"
    slot = {
        "type": "slot",
        "label": "t",
        "scope": "project",
        "content": "fine",
        "contentHash": content_hash("fine"),
        "rev": 0,
        "description": "d",
        "sizeLimit": 99,
        "pinned": True,
        "readOnly": False,
        "appendOnly": False,
        "deleted": False,
    }
    source.write_bytes(json.dumps(slot).encode())
    with crdtmem.open(tmp_path / "s.db", lane="b", project="p") as other:
        here.import_(source)
        other.import_(source)
        exchange_records([[here], [other]])

        assert read(here)[0] == read(other)[0] == "fine"


def test_a_dry_run_foresees_everything_and_writes_nothing(here, there):
    related(here, there)
    here.create("conflict", "ours")
    here.create("gone", "x")
    here.delete("gone")
    there.create("conflict", "theirs")
    there.create("gone", "y")
    there.create("new", "z")
    there.slot("t").append("v3")
    text = exported(there)
    before = rows_of(here.path)

    foreseen = take(here, text, dry_run=True, on_conflict="append")
    unchanged = rows_of(here.path) == before
    done = take(here, text, on_conflict="append")

    assert unchanged
    assert foreseen.dry_run
    assert foreseen.slots == done.slots
    assert actions_of(done) == [
        ("conflict", "conflict", None),
        ("gone", "deleted-here", None),
        ("new", "created", None),
        ("t", "merged", None),
    ]


def test_bad_lines_are_reported_beside_what_was_done(here, there):
    there.create("t", "v1")
    text = exported(there) + "{broken\n"

    report = take(here, text + json.dumps({"type": "novelty"}))

    assert [(bad.line, bad.code) for bad in report.bad] == [(4, "bad-json")]
    assert (report.ignored, report.truncated, report.dry_run) == (1, False, False)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda text: text + "{broken", r"line 4 of the source is bad \(bad-json"),
        (lambda text: text.rsplit('{"type": "end"', 1)[0], "ends early"),
    ],
)
def test_a_strict_import_is_refused_before_the_first_write(here, there, spoil, reason):
    there.create("t", "v1")
    before = rows_of(here.path)

    with pytest.raises(ImportRefusedError, match=reason) as caught:
        take(here, spoil(exported(there)), strict=True)

    assert caught.value.code == "import-refused"
    assert rows_of(here.path) == before


def test_a_strict_import_of_a_good_source_goes_through(here, there):
    there.create("t", "v1")

    report = take(here, exported(there), strict=True)

    assert actions_of(report) == [("t", "created", None)]


def test_a_source_that_ends_early_is_taken_as_far_as_it_goes(here, there):
    there.create("t", "v1")

    report = take(here, exported(there).rsplit('{"type": "end"', 1)[0])

    assert report.truncated
    assert actions_of(report) == [("t", "created", None)]


def test_a_file_that_cannot_be_read_is_refused_by_its_name(here, tmp_path):
    with pytest.raises(ImportRefusedError, match=r"/no' cannot be read: No such file"):
        here.import_(tmp_path / "no")


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"on_conflict": "merge"}, "on_conflict"),
        ({"revive": 1}, "revive"),
        ({"strict": None}, "strict"),
        ({"dry_run": "yes"}, "dry_run"),
    ],
)
def test_a_malformed_option_is_refused(here, tmp_path, options, argument):
    with pytest.raises(InvalidArgumentError) as caught:
        here.import_(tmp_path / "unread", **options)

    assert caught.value.code == "invalid-argument"
    assert caught.value.argument == argument


TEXTS = st.lists(
    st.sampled_from(["a", "b", "", "ü", "😀", "<x>", "\r", "\u2028"]), max_size=4
).map("\n".join)


@settings(max_examples=8)
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_what_is_exported_comes_back_as_it_was(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("round")
    with (
        crdtmem.open(folder / "a.db", lane="a", project="p") as one,
        crdtmem.open(folder / "b.db", lane="b", project="p") as two,
    ):
        one.create("t", texts[0])
        for text in texts[1:]:
            one.slot("t").replace(text)
        take(two, exported(one))

        def without_heads(memory):
            records = map(json.loads, exported(memory).splitlines()[1:])
            return [r | {"createdAt": "", "updatedAt": ""} for r in records]

        assert without_heads(two) == without_heads(one)
