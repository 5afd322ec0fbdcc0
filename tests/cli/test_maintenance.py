"""crdtmem.cli.maintenance: doctor, compact, backup"""

import json

import apsw
import pytest

from crdtmem.models import BackupReport, CompactReport, DoctorReport
from tests.cli.contract import validated


@pytest.fixture
def written(run):
    """Run commands on a store with two slots."""
    run("create", "plan", "a")
    run("append", "plan", "b")
    run("create", "notes", "x")
    return run


def damage(path, label):
    """Flip a byte in the newest record of a slot, behind the store's back."""
    connection = apsw.Connection(str(path))
    [(lsn, content)] = connection.execute(
        "SELECT log.lsn, log.content FROM log JOIN slot USING(doc)"
        " WHERE label = ? ORDER BY log.lsn DESC LIMIT 1",
        (label,),
    )
    flipped = content[:-1] + bytes([content[-1] ^ 0xFF])
    connection.execute("UPDATE log SET content = ? WHERE lsn = ?", (flipped, lsn))
    connection.close()


@pytest.mark.requirement("surfaces-11", "P8")
def test_a_flipped_byte_is_named_and_stops_no_other_slot(written, home):
    damage(home / "store.sqlite", "plan")

    report = written("doctor", "--json")
    failed = [c for c in json.loads(report.out)["checks"] if c["status"] == "fail"]
    shown = written("doctor")
    refused = written("append", "plan", "c", "--json")

    assert report.status == shown.status == 10
    assert {check["label"] for check in failed} == {"plan"}
    assert "records" in {check["id"] for check in failed}
    assert "fail  records plan" in shown.out
    assert refused.status == 7
    assert json.loads(refused.err)["error"]["code"] == "slot-quarantined"
    assert "this is its last good text" in written("get", "plan").err
    assert written("append", "notes", "y").status == 0


@pytest.mark.requirement("surfaces-2")
def test_a_sound_store_is_ok(written):
    result = written("doctor", "--deep")

    assert result.status == 0
    assert result.out.startswith("ok    sqlite")
    assert validated(DoctorReport, written("doctor", "--json").out)["ok"] is True
    assert written("doctor", "--repair").status == 0


def test_what_is_nearly_full_is_told_with_a_hint(run):
    run("create", "plan", "x" * 19, "--size-limit", "20")

    result = run("doctor")

    assert result.status == 0
    assert "warn  limits plan" in result.out


def test_compact_says_what_it_saved(written):
    assert " records, " in written("compact").out
    assert written("compact", "-q").out == ""
    validated(CompactReport, written("compact", "--json").out)


def test_a_backup_is_a_store_of_its_own(written, home):
    assert written("backup", "copy.sqlite").out.endswith(" bytes\n")
    assert written("--store", "copy.sqlite", "get", "plan").out == "a\nb\n"
    assert written("backup", "second.sqlite", "-q").out == ""
    report = validated(BackupReport, written("backup", "third.sqlite", "--json").out)
    assert report["bytes"] == (home / "third.sqlite").stat().st_size


def test_nothing_is_looked_after_where_there_is_nothing(run, home):
    for command in ("doctor", "compact"):
        assert run(command).status == 3
    assert json.loads(run("backup", "x", "--json").err)["error"]["code"] == (
        "store-not-found"
    )
    assert not (home / "store.sqlite").exists()
