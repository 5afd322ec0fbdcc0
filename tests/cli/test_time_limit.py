"""crdtmem.cli.time_limit"""

import io
import queue
import sys
import threading

from crdtmem.cli import __main__ as front, time_limit
from crdtmem.cli.time_limit import end_in_time

PATIENCE_S = 60


def test_a_process_that_takes_too_long_ends_without_harm(capsys):
    ended: queue.Queue[int] = queue.Queue()

    limit = end_in_time(end=ended.put)

    assert ended.get(timeout=PATIENCE_S) == 0
    limit.join()
    assert capsys.readouterr().err == "crdtmem hook: no answer within 0.85 s\n"


def test_a_limit_that_was_met_does_nothing(capsys):
    ended: queue.Queue[int] = queue.Queue()
    limit = end_in_time(end=ended.put)

    limit.cancel()
    limit.join()

    assert ended.empty()
    assert capsys.readouterr().err == ""


def test_only_a_hook_with_a_process_of_its_own_is_limited(
    home, monkeypatch, capsysbinary
):
    limits: list[threading.Timer] = []

    def begin():
        limits.append(threading.Timer(PATIENCE_S, limits.clear))
        return limits[-1]

    monkeypatch.setattr(time_limit, "end_in_time", begin)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))

    statuses = [
        front.status_of(["hook", "claude", "prompt"], is_own_process=True),
        front.status_of(["hook", "claude", "prompt"]),
        front.status_of(["list"], is_own_process=True),
    ]

    assert statuses == [0, 0, 3]
    assert [limit.finished.is_set() for limit in limits] == [True]
    assert capsysbinary.readouterr().out == b""
