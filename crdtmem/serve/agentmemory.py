"""The routes of the compatible system, behind the same guard as everything else."""

from crdtmem.memory import Memory
from crdtmem.serve.answers import Answer, Ask, json_answer
from crdtmem.serve.guard import Head
from crdtmem.serve.routing import check_right, not_allowed

__all__ = ["LANE", "PREFIX", "answer_agentmemory", "is_open_to", "refused"]

PREFIX = "/agentmemory"
"""What every path begins with."""

LANE = "agentmemory"
"""Who writes, unless a token has a name."""

_READING = ("GET", "HEAD")
_FROM_BROWSER = ("origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest")


def is_open_to(head: Head) -> bool:
    """Tell whether a request comes from no browser and brings no token.

    With ``--agentmemory-open`` such a one is let in, as the compatible system does.
    """
    return not any(head.all(name) for name in (*_FROM_BROWSER, "authorization"))


async def answer_agentmemory(ask: Ask) -> Answer:
    """Answer a request, by the functions that the other system has."""
    # It loads all that writes, and few ask for it.
    from crdtmem.compat.agentmemory import functions, rest  # noqa: PLC0415 - see above

    lane = ask.principal.name if ask.principal.token_id else LANE
    if ask.method not in _READING:
        check_right(ask)

    def respond_with(memory: Memory) -> tuple[int, dict[str, object]]:
        return rest.respond(
            functions.AgentMemorySlots(memory),
            "GET" if ask.method == "HEAD" else ask.method,
            ask.path,
            ask.query,
            {},
            ask.body,
        )

    async with ask.site.handles.use(ask.site.start_project, lane) as memory:
        status, value = await memory.call(respond_with)
    if status == 405:
        raise not_allowed(ask.method, rest.methods_at(ask.path))
    headers = {"Retry-After": "1"} if status == 503 else {}
    return json_answer(value, status, headers)


def refused(status: int, code: str, message: str) -> Answer:
    """Return a refusal as the callers of these routes expect it."""
    return json_answer({"success": False, "error": message, "code": code}, status)
