"""What a page says when something was refused: code, sentence, hint."""

from typing import Final

from crdtmem.errors import CrdtmemError
from crdtmem.serve.answers import Answer, Ask, html, status_of
from crdtmem.serve.markup import Child, h
from crdtmem.serve.pages.diffs import diff_block
from crdtmem.serve.pages.layout import frame, link
from crdtmem.serve.text import inline

__all__ = ["error_page", "refusal"]

_TITLES: Final = {
    400: "This could not be read",
    401: "Sign in",
    403: "This is not allowed",
    404: "There is no such page",
    409: "It has changed meanwhile",
    413: "It would be too large",
    429: "Too many attempts",
    503: "Not now",
}


def refusal(error: CrdtmemError) -> Child:
    """Return an error as an element: nothing was written."""
    diff: Child = None
    conflict = error.details.get("diff")
    if error.code == "conflict" and isinstance(conflict, str):
        cut = bool(error.details.get("diffTruncated"))
        diff = [h("h2", None, "Since then"), diff_block(conflict, is_cut=cut)]
    return h(
        "div",
        {"class": "refusal", "role": "alert"},
        h("p", None, h("code", None, error.code), ": ", inline(error.message)),
        h("p", {"class": "note"}, inline(error.hint)) if error.hint else None,
        h("p", {"class": "note"}, "Nothing was written."),
        diff,
    )


def error_page(ask: Ask, error: CrdtmemError) -> Answer:
    """Return the page of a request that was refused; asks nobody."""
    status = status_of(error)
    title = _TITLES.get(status, "This did not work")
    body: list[Child] = [refusal(error)]
    if status == 401:
        command = h("code", None, "crdtmem serve --url")
        body.append(
            h("p", None, "Run ", command, " on this machine, and open what it prints.")
        )
    else:
        body.append(h("p", None, link("/", "To the slots")))
    return html(frame(ask, title, body), status)
