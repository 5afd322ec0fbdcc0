r"""Text forms: the file that a doc holds, the view that callers see, and their sizes.

A file is empty or ends in "\n"; a foreign editor may leave another end, so every
function takes any text. The view is the file less one final "\n". Only "\n" ends a
line: "\r", U+0085 and U+2028 are ordinary characters, hence no ``splitlines``.

Three ways to count: ``_chars`` are code points, as in ``str``; ``_units`` are UTF-16
code units, as shown to users and counted by Yjs; ``_bytes`` are UTF-8, as in pycrdt.
Texts are free of lone surrogates; ``lone_surrogate`` is the check at the entrances.
"""

__all__ = [
    "append_splice",
    "bytes_of",
    "closed",
    "cut_units",
    "file_of",
    "lines_of",
    "lone_surrogate",
    "units_of",
    "view_lines",
    "view_of",
]


def view_of(file: str) -> str:
    """Return what callers see of a file: all but one final newline."""
    return file.removesuffix("\n")


def file_of(view: str) -> str:
    """Return the file that a local write leaves for this view."""
    return f"{view}\n" if view else ""


def closed(file: str) -> str:
    """Return a file with the final newline that it may lack."""
    return file if not file or file.endswith("\n") else f"{file}\n"


def lines_of(file: str) -> list[str]:
    """Split a file into its lines, each with its newline.

    Joined they are the file again. The last one lacks the newline where the file does.
    """
    *whole, rest = file.split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, rest] if rest else lines


def view_lines(view: str) -> list[str]:
    r"""Split a view into its lines, without newlines.

    An empty view has none, and "a\n" has two, so line n of the view is line n of the
    file.
    """
    return view.split("\n") if view else []


def units_of(text: str) -> int:
    """Count UTF-16 code units: the size that users are shown.

    Raises:
        UnicodeEncodeError: If the text holds a lone surrogate.

    """
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def bytes_of(text: str) -> int:
    """Count bytes of UTF-8: how pycrdt measures.

    Raises:
        UnicodeEncodeError: If the text holds a lone surrogate.

    """
    return len(text) if text.isascii() else len(text.encode())


def cut_units(text: str, limit_units: int) -> str:
    """Return the longest beginning of the text that has at most that many units.

    It may be one unit short of the limit, because a surrogate pair stays whole.

    Raises:
        UnicodeEncodeError: If the text holds a lone surrogate near its beginning.

    """
    # A code point has one unit or two, so nothing beyond this can be in the result.
    beginning = text[:limit_units]
    if beginning.isascii():
        return beginning
    kept = beginning.encode("utf-16-le")[: 2 * limit_units]
    # Only half a pair at the very end cannot be decoded.
    return kept.decode("utf-16-le", errors="ignore")


def lone_surrogate(text: str) -> int | None:
    """Return where the first lone surrogate is, in code points, or None.

    Python holds no pairs, so every surrogate in a ``str`` is a lone one. No UTF-8
    exists for it, and neither SQLite, pycrdt nor a peer could keep it.
    """
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        return exc.start
    return None


def append_splice(file: str, text: str) -> tuple[int, int, str]:
    """Say how to append to a file, in whole lines.

    A separator is added only where it is needed: text after a view that ends in a
    newline goes onto the blank line there, and a missing final newline is added first.
    What is inserted always ends in a newline, so that appends made at the same time
    elsewhere stay whole and cannot be glued to it.

    Args:
        file: The newest file, in any form.
        text: What to append; not empty.

    Returns:
        ``(start_chars, end_chars, insert)``: insert at the start, and delete what stood
        from the start to the end. That is empty or the newline of a blank last line.

    """
    end_chars = len(file)
    insert = file_of(text)
    if file and not file.endswith("\n"):
        return end_chars, end_chars, f"\n{insert}"
    # Merged deletions can leave the file "\n", whose view is empty: a blank line too.
    if file == "\n" or file.endswith("\n\n"):
        return end_chars - 1, end_chars, insert
    return end_chars, end_chars, insert
