"""The command that finds words."""

from crdtmem.cli.running import Call
from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import SEARCH_PAGE_MAX
from crdtmem.search.values import Kind, Mode, SearchHit, Sort

__all__ = ["search"]


def search(
    call: Call,
    *,
    query: tuple[str, ...],
    kind: Kind,
    label: str | None,
    mode: Mode,
    sort: Sort,
    limit: int,
) -> None:
    """Show the parts of slots that hold words, the best first."""
    if limit > SEARCH_PAGE_MAX:
        message = f"limit must be an integer between 1 and {SEARCH_PAGE_MAX}"
        raise InvalidArgumentError("limit", f"{message}, not {limit}")
    found = call.memory.search(
        " ".join(query),
        kinds=[kind],
        label=label,
        scope=call.scope,
        limit=limit,
        mode=mode,
        sort=sort,
    )
    if call.out.as_json:
        call.out.json(found)
        return
    for hit in found.hits:
        _print_hit(call, hit)
    if not found.hits:
        call.out.note("nothing found")
    if found.more:
        call.out.note("there is more: give a larger --limit, or more words")
    if found.degraded:
        call.out.warn("the search index is damaged; run 'crdtmem doctor --repair'")


def _print_hit(call: Call, hit: SearchHit) -> None:
    where = hit.label if not hit.line else f"{hit.label}:{hit.line}"
    past = [str(value) for value in (hit.history_id, hit.pass_id) if value]
    rest = [hit.scope, *past, hit.updated_at, f"by {hit.lane}"]
    partly = ["some of the words"] if hit.matched == "any" else []
    call.out.line(f"{where}  {', '.join([*rest, *partly])}", "bold")
    start, end = ("…" if cut else "" for cut in (hit.cut.start, hit.cut.end))
    for line in f"{start}{hit.snippet}{end}".split("\n"):
        call.out.line(f"  {line}")
