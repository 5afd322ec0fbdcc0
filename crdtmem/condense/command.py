"""A command as a summariser: the prompt on its stdin, the reply on its stdout.

No shell is between: the command is a list of words. It runs in a process group of its
own, so that all it starts can be ended with it, and nothing of it is left behind
however it ends: by itself, by a timeout, or because this process does. Only a process
that leaves the group on purpose gets away.

How it ends is told by its exit status: 0 for a reply, 75 for "out of quota, try later"
(EX_TEMPFAIL of sysexits.h; a line ``Retry-After: SECONDS`` on stderr says when), all
others for a failure.
"""

import atexit
import os
import re
import selectors
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from crdtmem.arguments import checked_count
from crdtmem.condense.values import CondensePass, RateLimitedError
from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import (
    COMMAND_GRACE_S,
    REPLY_BYTES,
    STDERR_KEPT_BYTES,
    STDERR_SHOWN_CHARS,
    UINT_MAX,
)

__all__ = [
    "CommandRun",
    "CommandSummariser",
    "SummariserFailedError",
    "command_summariser",
]

RATE_LIMITED = 75
_CHUNK_BYTES = 65_536
# A pipe's end wakes us; this is for a command that has closed its pipes and goes on, or
# has ended while something that it started keeps them open.
_LOOK_S = 0.05
_RETRY_AFTER = re.compile(r"^retry-after:[ \t]*([0-9]{1,9}(?:\.[0-9]+)?)[ \t]*$", re.M)


class SummariserFailedError(Exception):
    """A summariser has no reply, and knows the reason that the pass ends with.

    Args:
        reason: Such as ``summarize-failed``.
        detail: More about it.

    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def command_summariser(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None = None,
    max_output: int = REPLY_BYTES,
) -> "CommandSummariser":
    """Return a summariser that runs a command for each pass.

    This layer does not read the environment: ``crdtmem.command_summariser`` is the same
    with the environment of this process by default.

    Args:
        argv: The command and its arguments.
        env: Its whole environment; ``CRDTMEM_PASS_ID`` and ``CRDTMEM_SLOT`` are added.
        cwd: Where it runs; None: where this process does.
        max_output: Longest reply in bytes; a command that writes more is killed.

    Raises:
        InvalidArgumentError: If the command is none, or cannot be found.

    """
    if not hasattr(os, "killpg"):
        raise InvalidArgumentError(
            "argv",
            "this system has no process groups, so a command could not be ended",
            hint="run 'crdtmem condense LABEL --begin', and commit the reply later",
        )
    words = _checked_argv(argv)
    checked_count(max_output, "max_output", UINT_MAX)
    folder = None if cwd is None else os.fspath(cwd)
    _require_program(words[0], env, folder)
    return CommandSummariser(words, dict(env), folder, max_output)


class CommandSummariser:
    """Runs a command for each pass; made by ``command_summariser``.

    Safe from any thread; each pass has a process of its own.

    Args:
        argv: The command.
        env: Its environment.
        cwd: Where it runs.
        max_output: Longest reply in bytes.
        grace_s: How long it may take to end when it is told to.

    Attributes:
        name: Of the program, without its folder and its arguments, which may hold
            secrets: what backs off when it is out of quota.

    """

    def __init__(
        self,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        cwd: str | None,
        max_output: int = REPLY_BYTES,
        *,
        grace_s: float = COMMAND_GRACE_S,
    ) -> None:
        self.name = os.path.basename(argv[0])
        self._argv = argv
        self._env = dict(env)
        self._cwd = cwd
        self._max_output = max_output
        self._grace_s = grace_s

    def __repr__(self) -> str:
        return f"CommandSummariser({self.name!r})"

    def __call__(self, begun: CondensePass) -> str:
        """Run the command for a pass and return what it wrote; see ``CommandRun``."""
        return self.start(begun).reply()

    def start(self, begun: CondensePass) -> "CommandRun":
        """Start the command for a pass. Call ``reply`` next, ``stop`` to give up.

        Raises:
            SummariserFailedError: If it cannot be started.

        """
        try:
            process = subprocess.Popen(
                self._argv,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._cwd,
                env={
                    **self._env,
                    "CRDTMEM_PASS_ID": begun.id,
                    "CRDTMEM_SLOT": begun.label,
                },
                start_new_session=True,
            )
        except OSError as exc:
            detail = f"{self.name} cannot be run: {exc.strerror}"
            raise SummariserFailedError("summarize-failed", detail) from exc
        return CommandRun(
            process, begun.prompt.encode(), self._max_output, self._grace_s
        )


class CommandRun:
    """A command at work.

    ``reply`` is called once; ``stop`` at any time, from any thread. When either has
    returned there is no process of the group any more.

    Args:
        process: The command, the first of its own process group.
        prompt: What it is to read.
        max_output: See CommandSummariser.
        grace_s: See CommandSummariser.

    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        prompt: bytes,
        max_output: int,
        grace_s: float,
    ) -> None:
        self._process = process
        self._prompt = memoryview(prompt)
        self._max_output = max_output
        self._grace_s = grace_s
        self._owner = os.getpid()
        self._reply = bytearray()
        self._stderr = bytearray()
        # From then on its id may be another process's.
        self._is_over = False
        # A summariser's thread does not keep this process alive, so at its end somebody
        # may still be at work. Handlers run while such threads still do.
        atexit.register(self._stop_at_exit)

    def reply(self) -> str:
        """Feed the command, wait for its end, and return what it wrote.

        Raises:
            RateLimitedError: If it ended with status 75.
            SummariserFailedError: If it failed, wrote too much, or no UTF-8.

        """
        try:
            self._serve_until_end()
        finally:
            self._kill_all()
        return self._judged()

    def stop(self) -> None:
        """End the command: ask its group to, then kill what is left of it.

        Returns when the command is gone, after the grace at the latest. Idempotent.
        """
        if self._is_over:
            return
        self._signal_group(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(self._grace_s)
        self._kill_all()

    def _kill_all(self) -> None:
        """However it ended: end it, and whatever it has started, for good."""
        self._signal_group(signal.SIGKILL)
        self._process.wait()
        self._is_over = True
        atexit.unregister(self._stop_at_exit)

    def _stop_at_exit(self) -> None:
        # A fork of this process has the handler too, and no business with the command.
        if os.getpid() == self._owner:
            self.stop()

    def _signal_group(self, number: signal.Signals) -> None:
        # Nobody is left, or only what runs under another account by now.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _serve_until_end(self) -> None:
        process = self._process
        pipes = filter(None, (process.stdin, process.stdout, process.stderr))
        handlers = (self._feed, self._take, self._hear)
        with selectors.DefaultSelector() as selector:
            for pipe, handle in zip(pipes, handlers, strict=True):
                os.set_blocking(pipe.fileno(), False)
                is_stdin = handle == self._feed
                event = selectors.EVENT_WRITE if is_stdin else selectors.EVENT_READ
                selector.register(pipe, event, (pipe, handle))
            try:
                while process.poll() is None and not self._is_too_long:
                    _serve(selector)
                # What is left in the pipes is read to the end, which comes at once
                # unless something outside of the group keeps them open.
                self._signal_group(signal.SIGKILL)
                while not self._is_too_long and _serve(selector):
                    pass
            finally:
                for key in list(selector.get_map().values()):
                    _close(selector, key)

    @property
    def _is_too_long(self) -> bool:
        return len(self._reply) > self._max_output

    def _feed(self, descriptor: int) -> bool:
        try:
            written = os.write(descriptor, self._prompt[:_CHUNK_BYTES])
        except BrokenPipeError:
            # It need not read all of the prompt, or any of it.
            return False
        self._prompt = self._prompt[written:]
        return bool(self._prompt)

    def _take(self, descriptor: int) -> bool:
        chunk = os.read(descriptor, _CHUNK_BYTES)
        self._reply += chunk
        return bool(chunk)

    def _hear(self, descriptor: int) -> bool:
        chunk = os.read(descriptor, _CHUNK_BYTES)
        self._stderr += chunk
        del self._stderr[:-STDERR_KEPT_BYTES]
        return bool(chunk)

    def _judged(self) -> str:
        status = self._process.returncode
        if self._is_too_long:
            detail = f"it wrote more than {self._max_output} bytes"
            raise SummariserFailedError("reply-unframed", detail)
        heard = self._stderr.decode("utf-8", "replace")
        if status == RATE_LIMITED:
            raise RateLimitedError(_retry_after(heard))
        if status != 0:
            how = f"exit status {status}" if status > 0 else f"signal {-status}"
            tail = heard.strip()[-STDERR_SHOWN_CHARS:]
            detail = f"{how}: {tail}" if tail else how
            raise SummariserFailedError("summarize-failed", detail)
        try:
            return self._reply.decode("utf-8")
        except UnicodeDecodeError as exc:
            detail = f"its output is not UTF-8, at byte {exc.start}"
            raise SummariserFailedError("invalid-text", detail) from exc


def _serve(selector: selectors.BaseSelector) -> bool:
    """Serve the pipes that are ready; return whether there were any.

    A handler tells whether its pipe is still of use.
    """
    ready = selector.select(_LOOK_S)
    for key, _ in ready:
        _, handle = key.data
        if not handle(key.fd):
            _close(selector, key)
    return bool(ready)


def _close(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    pipe, _ = key.data
    selector.unregister(pipe)
    pipe.close()


def _checked_argv(argv: object) -> tuple[str, ...]:
    words = tuple(argv) if isinstance(argv, (list, tuple)) else ()
    if not words or not all(isinstance(w, str) and "\0" not in w for w in words):
        raise InvalidArgumentError(
            "argv", "argv must be a command and its arguments, as a list of strings"
        )
    return words


def _require_program(name: str, env: Mapping[str, str], cwd: str | None) -> None:
    """Find a mistyped program now, not in each pass after the text has been archived.

    Raises:
        InvalidArgumentError: If there is none of this name that may be run.

    """
    program = os.path.join(cwd or "", name) if os.path.dirname(name) else name
    path = os.pathsep.join(os.get_exec_path(dict(env)))
    if shutil.which(program, path=path) is None:
        raise InvalidArgumentError(
            "argv",
            f"there is no command {name!r}",
            hint="give the path of a program, or the name of one on PATH",
            details={"command": name},
        )


def _retry_after(heard: str) -> float | None:
    """Return the seconds that a command asks for on stderr, the last word counting."""
    found = _RETRY_AFTER.findall(heard.lower())
    return float(found[-1]) if found else None
