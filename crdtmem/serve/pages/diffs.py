"""Differences between two texts, shown so that they are read without colours, too."""

from crdtmem.serve.markup import Attributes, Child, Markup, h
from crdtmem.serve.text import shown_line
from crdtmem.textdiff import unified

__all__ = ["diff_block", "diff_of"]

_SHOWN_UNITS = 4_000


def diff_of(
    old: str, new: str, *, label: str, names: tuple[str | int, str | int]
) -> Child:
    """Return what makes one text the other."""
    found = unified(old, new, label=label, from_rev=names[0], to_rev=names[1])
    return diff_block(found.text, is_cut=found.truncated)


def diff_block(diff: str, *, is_cut: bool = False) -> Child:
    """Return a unified diff as an element; in words, if there is none."""
    if not diff:
        return h("p", {"class": "note"}, "The texts are equal.")
    lines = [_line(line) for line in diff.removesuffix("\n").split("\n")[2:]]
    note = h("p", {"class": "note"}, "The rest is not shown.") if is_cut else None
    around: Attributes = {
        "class": "diff",
        "tabindex": 0,
        "role": "region",
        "aria-label": "Difference",
    }
    return [h("div", around, lines), note]


def _line(line: str) -> Markup:
    sign, text = line[:1], line[1:]
    body, is_cut = shown_line(text, _SHOWN_UNITS)
    tag = {"+": "ins", "-": "del"}.get(sign, "span")
    word = {"+": "added: ", "-": "removed: "}.get(sign)
    if sign == "@":
        return h("div", {"class": "line at"}, line)
    mark = h("span", {"class": "sign", "aria-hidden": "true"}, sign or " ")
    said = h("span", {"class": "quiet"}, word) if word else None
    return h(
        "div",
        {"class": "line"},
        h(tag, {"dir": "auto"}, mark, said, body, " …" if is_cut else None),
    )
