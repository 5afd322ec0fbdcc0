"""Builds HTML: the one way in which anything gets onto a page, and it is escaped.

A ``str`` is text, always; only ``h`` and ``document`` make Markup, and nothing turns a
``str`` into it. So no page can forget to escape. Pure.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from html import escape
from typing import Final
from urllib.parse import quote, urlencode

__all__ = ["Attributes", "Child", "Markup", "address", "document", "h"]


class Markup:
    """HTML that is safe to send; made by ``h`` and ``document``.

    ``Markup()`` is none.
    """

    __slots__ = ("_html",)

    def __init__(self) -> None:
        self._html = ""

    def __str__(self) -> str:
        return self._html

    def __bool__(self) -> bool:
        return bool(self._html)


Child = Markup | str | int | None | Sequence["Child"]
"""What an element may hold; a text is escaped, None is nothing."""

Attributes = Mapping[str, str | int | bool | None]
"""True stands for an attribute without a value; False and None for none."""

_VOID: Final = frozenset({"br", "hr", "input", "link", "meta"})
_TAG: Final = re.compile(r"[a-z][a-z0-9]*")
_NAME: Final = re.compile(r"(?!on)(?!style)(?!srcdoc)[a-z][a-z0-9-]*")
_ADDRESSES: Final = frozenset({"action", "formaction", "href", "src"})
_SPECIAL: Final = re.compile("[&<>\"']")
_OWN: Final = re.compile(r"[?#].*|/(?![/\\]).*", re.DOTALL)


def h(tag: str, attributes: Attributes | None = None, *children: Child) -> Markup:
    """Return an element.

    Args:
        tag: Its name.
        attributes: Its attributes; addresses must be of this server.
        children: What it holds.

    Raises:
        ValueError: If a name is none, an attribute is a script or a style, an address
            leads elsewhere, or an element has content that can have none.

    """
    if _is_bare(tag) and children:
        raise ValueError(f"{tag} holds nothing")
    parts = ["<", tag]
    for name, value in attributes.items() if attributes else ():
        parts.append(_attribute(name, value))
    parts.append(">")
    _put(parts, children)
    if tag not in _VOID:
        parts += ("</", tag, ">")
    return _made("".join(parts))


def document(attributes: Attributes, head: Child, body: Child) -> Markup:
    """Return a whole page."""
    page = h("html", attributes, h("head", None, head), body)
    return _made(f"<!doctype html>\n{page}")


def address(*segments: str, **query: str | int | None) -> str:
    """Return the address of a page; segments and values may be any text.

    Args:
        segments: Of the path.
        query: What follows; without those that are None. A name may end in ``_``.

    """
    path = "/" + "/".join(map(_quoted, segments))
    given = {k.rstrip("_"): v for k, v in query.items() if v is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _made(html: str) -> Markup:
    made = Markup()
    made._html = html
    return made


@lru_cache(maxsize=1024)
def _quoted(segment: str) -> str:
    return quote(segment, safe="")


# A page has thousands of elements, of a few dozen names.
@cache
def _is_bare(tag: str) -> bool:
    """Tell whether an element holds nothing; raise if a page has none of the name."""
    if not _TAG.fullmatch(tag):
        raise ValueError(f"no element of a page: {tag!a}")
    return tag in _VOID or tag in ("script", "style")


@cache
def _is_address(name: str) -> bool:
    """Tell whether an attribute is an address; raise if a page has none of the name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"no attribute of a page: {name!a}")
    return name in _ADDRESSES


def _attribute(name: str, value: str | int | bool | None) -> str:  # noqa: FBT001 - an attribute's value
    is_address = _is_address(name)
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    text = str(value)
    if is_address and not _OWN.fullmatch(text):
        raise ValueError(f"{name} leads elsewhere: {value!a:.60}")
    return f' {name}="{escape(text) if _SPECIAL.search(text) else text}"'


def _put(parts: list[str], children: Iterable[Child]) -> None:
    """Add the HTML of children; every text is escaped here."""
    for child in children:
        if isinstance(child, Markup):
            parts.append(child._html)
        elif isinstance(child, str):
            parts.append(
                escape(child, quote=False) if _SPECIAL.search(child) else child
            )
        elif isinstance(child, int):
            parts.append(str(child))
        elif child is not None:
            _put(parts, child)
