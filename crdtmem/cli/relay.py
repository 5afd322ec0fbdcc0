"""The command that is the relay's own: the same as ``crdtmem-relay``."""

from crdtmem.cli.running import Call

__all__ = ["relay"]


def relay(call: Call, *, words: tuple[str, ...]) -> int:
    """Run a command of the relay; it opens no store, and tells its errors itself."""
    # Only this command needs the other package.
    from relay.cli import status_of  # noqa: PLC0415 - see above

    is_json_asked = call.out.as_json and "--json" not in words
    line = [*words, *(["--json"] if is_json_asked else [])]
    return status_of(line, "crdtmem relay")
