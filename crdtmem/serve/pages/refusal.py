"""What a page says when something was refused: code, sentence, hint."""

from typing import Final

from crdtmem.errors import CrdtmemError
from crdtmem.serve.answers import Answer, Ask, html, status_of
from crdtmem.serve.forms import area
from crdtmem.serve.markup import Child, h
from crdtmem.serve.pages.diffs import diff_block
from crdtmem.serve.pages.layout import Part, Visit, field, frame, link, page
from crdtmem.serve.text import inline

__all__ = ["error_page", "refusal", "set_aside"]

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


def refusal(error: CrdtmemError, *, of_write: bool = True) -> Child:
    """Return an error as an element; of a write it says that nothing was written."""
    diff: Child = None
    conflict = error.details.get("diff")
    if error.code == "conflict" and isinstance(conflict, str):
        cut = bool(error.details.get("diffTruncated"))
        diff = [h("h2", None, "Since then"), diff_block(conflict, is_cut=cut)]
    # The page of a conflict has the way on itself, not that of the command line.
    hint = None if error.code == "conflict" else error.hint
    return h(
        "div",
        {"class": "refusal", "role": "alert"},
        h("p", None, h("code", None, error.code), ": ", inline(error.message)),
        h("p", {"class": "note"}, inline(hint)) if hint else None,
        h("p", {"class": "note"}, "Nothing was written.") if of_write else None,
        diff,
    )


def set_aside(
    visit: Visit, title: str, text: str, error: CrdtmemError, at: str
) -> Answer:
    """Return what was typed for a place that is gone, to be copied from there."""
    kept = field("What you typed", area("text", text, {"rows": 20}), "text")
    parts = [Part("kept", [refusal(error), kept])]
    return page(visit, title, parts, at=at, status=status_of(error))


def error_page(ask: Ask, error: CrdtmemError) -> Answer:
    """Return the page of a request that was refused; asks nobody."""
    status = status_of(error)
    title = _TITLES.get(status, "This did not work")
    body: list[Child] = [refusal(error, of_write=ask.method == "POST")]
    if status == 401:
        body = [h("p", None, inline(error.message), ".")]
        command = h("code", None, "crdtmem serve --url")
        then = " on the machine of the store, and open the address that it prints."
        body.append(h("p", None, "Run ", command, then, " It is good once."))
    else:
        body.append(h("p", None, link("/", "To the slots", {"class": "action"})))
    return html(frame(ask, title, body), status)
