"""``crdtmem mcp``: the memory for an agent's client, over stdin and stdout."""

import importlib.util

from crdtmem.cli.running import Call
from crdtmem.errors import MissingExtraError

__all__ = ["mcp"]


def mcp(call: Call) -> None:
    """Serve until the client closes stdin."""
    if importlib.util.find_spec("mcp") is None:
        raise MissingExtraError(extra="mcp", package="mcp")
    # The SDK takes longer to load than all of the rest.
    from crdtmem.mcp.session import Opened  # noqa: PLC0415 - see above
    from crdtmem.mcp.stdio import run  # noqa: PLC0415 - see above

    def open_memory(lane: str) -> Opened:
        # With the first call, so that a client is told of a bad setting or store.
        from crdtmem import opening  # noqa: PLC0415 - loads the store

        config = call.config
        if config.sources["lane"] == "default":
            config = config._replace(lane=lane)
        token, keyring = config.relay_token, config.relay_keyring
        return Opened(
            opening.open_with(config),
            new_scope=call.scope or config.scope,
            relay_token=None if token is None else token.reveal(),
            relay_keyring=None if keyring is None else keyring.reveal(),
        )

    run(open_memory)
