"""crdtmem.cli.progress"""

import io
import sys
import threading

import pytest

from crdtmem.cli.output import Output
from crdtmem.cli.progress import progress


class Stderr(io.TextIOWrapper):
    """A stream that lets a test wait until something was written to it."""

    is_terminal = True

    def __init__(self):
        self.seen = threading.Event()
        self.raw_bytes = io.BytesIO()
        super().__init__(self.raw_bytes, encoding="utf-8", write_through=True)

    @property
    def buffer(self):
        self.seen.set()
        return super().buffer

    def write(self, text):
        self.seen.set()
        return super().write(text)

    def isatty(self):
        return self.is_terminal


@pytest.fixture
def stderr(monkeypatch):
    """Make stderr a terminal, from within the test: pytest swaps it before."""

    def attach(*, is_terminal=True):
        stream = Stderr()
        stream.is_terminal = is_terminal
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    return attach


def test_a_terminal_sees_that_a_long_call_is_at_work(stderr):
    stream = stderr()

    with progress(Output(), "importing", None, interval_s=0.001):
        assert stream.seen.wait(30)

    assert "importing" in stream.raw_bytes.getvalue().decode()


def test_a_short_call_shows_nothing(stderr):
    stream = stderr()

    with progress(Output(), "importing", None):
        pass

    assert stream.raw_bytes.getvalue() == b""


def test_plain_tells_a_line_now_and_then_without_a_terminal(stderr):
    stream = stderr(is_terminal=False)

    with progress(Output(), "importing", "plain", interval_s=0.001):
        assert stream.seen.wait(30)

    assert stream.raw_bytes.getvalue().decode().startswith("importing: 0 s\n")


@pytest.mark.parametrize("out", [Output(as_json=True), Output(is_quiet=True)])
def test_nobody_is_told_who_does_not_want_to_know(out, stderr):
    stream = stderr()

    with progress(out, "importing", None, interval_s=0.001):
        assert threading.active_count() == 1

    assert stream.raw_bytes.getvalue() == b""


def test_a_pipe_is_told_nothing(capsys):
    with progress(Output(), "importing", None, interval_s=0.001):
        pass

    assert capsys.readouterr().err == ""


def test_the_call_may_fail(stderr):
    stderr()

    with pytest.raises(KeyError), progress(Output(), "importing", None):
        raise KeyError
