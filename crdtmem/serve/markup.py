"""Builds HTML: the one way in which anything gets onto a page, and it is escaped.

A ``str`` is text, always; only ``h`` and ``document`` make Markup, and nothing turns a
``str`` into it. So no page can forget to escape. Pure.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
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
    if not _TAG.fullmatch(tag) or (tag in ("script", "style") and children):
        raise ValueError(f"no element of a page: {tag!a}")
    parts = [f"<{tag}"]
    for name, value in (attributes or {}).items():
        parts.append(_attribute(name, value))
    parts.append(">")
    if tag in _VOID:
        if children:
            raise ValueError(f"{tag} holds nothing")
    else:
        parts += _flat(children)
        parts.append(f"</{tag}>")
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
    path = "/" + "/".join(quote(segment, safe="") for segment in segments)
    given = {k.rstrip("_"): v for k, v in query.items() if v is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _made(html: str) -> Markup:
    made = Markup()
    made._html = html
    return made


def _attribute(name: str, value: str | int | bool | None) -> str:  # noqa: FBT001 - an attribute's value
    if not _NAME.fullmatch(name):
        raise ValueError(f"no attribute of a page: {name!a}")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    if name in _ADDRESSES and not _OWN.fullmatch(str(value)):
        raise ValueError(f"{name} leads elsewhere: {value!a:.60}")
    return f' {name}="{escape(str(value))}"'


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, Markup):
            yield str(child)
        elif isinstance(child, str):
            yield escape(child, quote=False)
        elif isinstance(child, int):
            yield str(child)
        elif child is not None:
            yield from _flat(child)
