"""relay.server.events"""

import json
import logging
import sys

from relay.server.events import JsonLines, log


def lines_of(caplog):
    return [json.loads(JsonLines().format(each)) for each in caplog.records]


def test_an_event_is_one_line_of_json(caplog):
    caplog.set_level(logging.INFO)
    log("closed", connection=3, reason="done")

    [line] = lines_of(caplog)
    assert line.pop("at").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "relay",
        "event": "closed",
        "connection": 3,
        "reason": "done",
    }


def test_an_exception_is_named_and_placed_and_not_quoted(caplog):
    try:
        raise ValueError("a peer sent\nthis")
    except ValueError as error:
        log("storage-failed", logging.ERROR, error=error)

    [line] = lines_of(caplog)
    assert line["error"] == "ValueError"
    [where] = line["where"]
    assert where.startswith("test_an_exception_is_named_and_placed_and_not_quoted:")
    assert "this" not in json.dumps(line)


def test_the_words_of_a_library_become_a_line_too():
    message = ("connection %s", ("lost",))
    place = ("relay.websockets", logging.WARNING, "server.py", 1)
    plain = logging.LogRecord(*place, *message, None)
    without = logging.LogRecord(*place, *message, sys.exc_info())

    for record in (plain, without):
        line = json.loads(JsonLines().format(record))
        assert line["event"] == "connection lost"
        assert "error" not in line
