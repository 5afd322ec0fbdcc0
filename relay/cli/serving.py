"""Serves the log of a place in this process, until a signal ends it."""

import asyncio
import errno
import logging
import ssl
import sys
from collections.abc import Callable

from crdtmem.errors import (
    ConfigError,
    CrdtmemError,
    InvalidArgumentError,
    PortInUseError,
)
from relay.cli.places import Place, storage_at
from relay.config import RelayConfig
from relay.storage import Storage

__all__ = ["address_of", "serve_place"]


def serve_place(
    place: Place,
    *,
    is_restored: bool,
    on_ready: Callable[[int], None],
) -> int:
    """Serve; return the exit status.

    Args:
        place: Of the log; its settings hold what the command line says instead.
        is_restored: Whether the log was put back from a copy.
        on_ready: Called with the port once clients can connect.

    Raises:
        RelayError: If the log cannot be served, or the address cannot be had.
        ConfigError: If the certificate cannot be used, or an extra is not installed.
        InvalidArgumentError: If there is no such address on this machine.

    """
    config = place.config
    tls = _tls(config)
    storage = storage_at(place, is_restored=is_restored)
    try:
        return _run(storage, config, tls, on_ready)
    except CrdtmemError:
        # Some of ours are OSErrors too.
        raise
    except OSError as error:
        address = address_of(config.host, config.port)
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(address=address) from error
        raise InvalidArgumentError(
            "listen",
            f"listen: {address} cannot be had: {error.strerror or error}",
            details={"address": address},
        ) from error


def address_of(host: str, port: int) -> str:
    """Return an address as it stands in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _run(
    storage: Storage,
    config: RelayConfig,
    tls: ssl.SSLContext | None,
    on_ready: Callable[[int], None],
) -> int:
    # Slow to load, and no other command needs it.
    from relay.server import JsonLines, serve  # noqa: PLC0415 - see above

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    relay = serve(
        storage,
        config.limits,
        host=config.host,
        port=config.port,
        on_ready=on_ready,
        tls=tls,
        origins=config.origins,
        proxies=config.proxies,
    )
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(relay)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - an extra, and not for Windows
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _tls(config: RelayConfig) -> ssl.SSLContext | None:
    if config.tls_cert is None and config.tls_key is None:
        return None
    if config.tls_cert is None or config.tls_key is None:
        raise ConfigError(
            "tls_cert and tls_key go together, and one of them is missing",
            code="config-invalid",
            details={"key": "tls_key" if config.tls_cert else "tls_cert"},
        )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # A key with a passphrase is refused: nobody could be asked at a restart.
        context.load_cert_chain(config.tls_cert, config.tls_key, password=lambda: "")
    except OSError as error:
        raise ConfigError(
            f"tls_cert {str(config.tls_cert)!r} with tls_key {str(config.tls_key)!r}"
            f" cannot be used: {error.strerror or error}",
            code="config-invalid",
            details={"key": "tls_cert", "path": str(config.tls_cert)},
        ) from error
    return context
