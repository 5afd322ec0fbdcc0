"""Where words go: the answer to stdout, everything else to stderr.

Texts of a memory are written by many and read by people on a terminal, so there the
control characters in them are shown, not obeyed. Into a pipe or a file everything goes
verbatim, in UTF-8, whatever the locale.
"""

import json
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from crdtmem.errors import CrdtmemError

if TYPE_CHECKING:
    from crdtmem.models import Model

__all__ = ["Output", "decide_color", "escape_for_terminal"]

# C0 and C1 controls but for newline and tab, and what reorders text on the screen.
# Compiled at first use: most output goes to no terminal.
_DANGEROUS = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
_STYLES = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}


def escape_for_terminal(text: str) -> str:
    r"""Return text with its control and bidi characters shown, such as ``\x1b``."""
    return re.sub(_DANGEROUS, lambda match: _shown(match[0]), text)


def _shown(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def decide_color(
    option: str | None,
    setting: str,
    environ: Mapping[str, str],
    *,
    is_terminal: bool,
) -> bool:
    """Return whether to colour what goes to a stream.

    Args:
        option: What --color says, if it was given.
        setting: The configured value.
        environ: Has NO_COLOR, FORCE_COLOR, TERM.
        is_terminal: Whether the stream is one.

    """
    can_show = is_terminal and environ.get("TERM") != "dumb"
    if option is not None:
        return option == "always" or (option == "auto" and can_show)
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return setting == "always" or (setting == "auto" and can_show)


class Output:
    """The two streams of a command, and how to write to them.

    Args:
        as_json: Whether the answer is JSON.
        is_quiet: Whether notes and results of writes are left out. Warnings are not.
        is_verbose: Whether details are told.

    """

    def __init__(
        self,
        *,
        as_json: bool = False,
        is_quiet: bool = False,
        is_verbose: bool = False,
    ) -> None:
        self.as_json = as_json
        self.is_quiet = is_quiet
        self.is_verbose = is_verbose
        self.has_color = False
        self._has_error_color = False

    def choose_color(
        self, option: str | None, setting: str, environ: Mapping[str, str]
    ) -> None:
        """Settle whether each of the streams is coloured; JSON never is."""
        self.has_color = not self.as_json and decide_color(
            option, setting, environ, is_terminal=sys.stdout.isatty()
        )
        self._has_error_color = not self.as_json and decide_color(
            option, setting, environ, is_terminal=sys.stderr.isatty()
        )

    def text(self, text: str) -> None:
        """Write a part of the answer as it is, without adding a line end."""
        _write(sys.stdout, text)

    def line(self, text: str = "", style: str = "") -> None:
        """Write a line of the answer."""
        if sys.stdout.isatty():
            text = escape_for_terminal(text)
        _write(sys.stdout, f"{_painted(text, style, self.has_color)}\n", is_safe=True)

    def json(self, value: "Model | Mapping[str, object]") -> None:
        """Write the answer, or one of its lines, as JSON."""
        found = value if isinstance(value, Mapping) else value.to_dict()
        _write(sys.stdout, f"{_json(found, sys.stdout)}\n", is_safe=True)

    def diff(self, unified: str) -> None:
        """Write a unified diff, line by line."""
        for line in unified.removesuffix("\n").split("\n") if unified else []:
            style = {"+": "green", "-": "red", "@": "dim"}.get(line[:1], "")
            is_header = line.startswith(("--- ", "+++ "))
            self.line(line, "bold" if is_header else style)

    def note(self, text: str) -> None:
        """Tell something beside the answer; silent with --quiet."""
        if not self.is_quiet:
            self._tell(text, "dim")

    def detail(self, text: str) -> None:
        """Tell something with --verbose only."""
        if self.is_verbose:
            self._tell(text, "dim")

    def warn(self, text: str) -> None:
        """Tell what must not be overlooked, also with --quiet."""
        self._tell(text, "yellow")

    def prompt(self, text: str) -> None:
        """Ask on stderr; the answer is read elsewhere."""
        _write(sys.stderr, text)
        sys.stderr.flush()

    def error(self, error: CrdtmemError) -> None:
        """Tell why the command failed: one line with --json, else for people."""
        if self.as_json:
            _write(sys.stderr, f"{_json(error.to_dict(), sys.stderr)}\n", is_safe=True)
            return
        self._tell(f"error: {error.message}", "red")
        if error.hint:
            self._tell(f"hint: {error.hint}", "")
        diff = error.details.get("diff")
        if isinstance(diff, str):
            self._tell(diff.removesuffix("\n"), "")

    def flush(self) -> None:
        """Hand everything over to the system."""
        sys.stdout.flush()
        sys.stderr.flush()

    def _tell(self, text: str, style: str) -> None:
        if sys.stderr.isatty():
            text = escape_for_terminal(text)
        text = _painted(text, style, self._has_error_color)
        _write(sys.stderr, f"{text}\n", is_safe=True)


def _painted(text: str, style: str, has_color: bool) -> str:  # noqa: FBT001 - private, and named by every caller's variable
    if not (style and has_color and text):
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def _json(value: Mapping[str, object], stream: TextIO) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    if not stream.isatty():
        return text
    # json escapes the C0 controls itself; the others are legal in a string.
    return re.sub(_DANGEROUS, lambda match: f"\\u{ord(match[0]):04x}", text)


def _write(stream: TextIO, text: str, *, is_safe: bool = False) -> None:
    if not is_safe and stream.isatty():
        text = escape_for_terminal(text)
    # Past the text layer, whose encoding and line ends depend on the machine. A lone
    # surrogate, from an argument that is no UTF-8, becomes its escape.
    stream.flush()
    stream.buffer.write(text.encode("utf-8", "backslashreplace"))
