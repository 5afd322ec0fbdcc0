"""``crdtmem serve``: the memory in a browser, and for programs and editors."""

import gc
import importlib.util
import logging
import secrets
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from crdtmem.cli.running import Call
from crdtmem.config.places import default_lane, process_environment
from crdtmem.errors import InvalidArgumentError, MissingExtraError, ServeNotRunningError
from crdtmem.scope import parse_project_id

if TYPE_CHECKING:
    from crdtmem.memory import Memory
    from crdtmem.serve.run import Background, Options
    from crdtmem.serve.runfiles import Running

__all__ = ["HowToServe", "serve"]

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
_PORT_MAX = 65_535


class HowToServe(TypedDict, total=False):
    """How to serve; only what was given is in it."""

    host: str
    port: int
    read_only: bool
    only_project: str
    token_file: str
    origins: tuple[str, ...]
    public_url: str
    tls_cert: str
    tls_key: str
    behind_proxy: str
    agentmemory_open: bool
    log_format: str


def serve(
    call: Call,
    *,
    action: str | None,
    system: str | None,
    url: bool,
    another: bool,
    is_opened: bool,
    **how: Unpack[HowToServe],
) -> None:
    """Serve until stopped; or lead to the server that runs, or print a unit."""
    if action is not None:
        if url or another or is_opened or any(v != () for v in how.values()):
            message = "'serve unit' takes no options of a server: add them to the unit"
            raise InvalidArgumentError("system", message, code="usage")
        _print_unit(call, system)
        return
    _require_extra()
    # Loads no web server: leading to one that runs is quick.
    from crdtmem.serve.runfiles import folder_for, invitation, running_servers  # noqa: PLC0415 - see above

    store = call.config.store
    resolved = str(store.resolve())
    running = [s for s in running_servers(folder_for(store)) if s.store == resolved]
    if running and (url or not another):
        found = invitation(running[0], store=store)
        _lead(call, found, running[0], is_opened=is_opened)
        return
    if url:
        raise ServeNotRunningError(store=str(store))
    _run(call, how, is_opened=is_opened)


def _require_extra() -> None:
    for package in ("starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(extra="serve", package=package)


def _run(call: Call, given: HowToServe, *, is_opened: bool) -> None:
    # They take longer to load than all of the rest; nothing of it is ever garbage.
    gc.disable()
    from crdtmem.serve.parts import make_parts  # noqa: PLC0415 - see above
    from crdtmem.serve.run import Ready, serve as run  # noqa: PLC0415 - see above

    gc.freeze()
    gc.enable()
    options = _options(given)
    background = _background(call, read_only=options.read_only)

    def tell(ready: Ready) -> None:
        _lead(call, ready.url, ready.running, is_opened=is_opened)
        call.out.flush()
        call.out.note("serving; Ctrl-C stops it")

    if call.out.is_verbose:
        logging.getLogger("crdtmem.serve").setLevel(logging.DEBUG)
    run(options, background, make_parts, tell)


def _options(given: HowToServe) -> "Options":
    from crdtmem.serve.run import Options  # noqa: PLC0415 - as above

    port = given.get("port")
    if port is not None and not 0 <= port <= _PORT_MAX:
        message = f"port must be between 0 and {_PORT_MAX}, not {port}"
        raise InvalidArgumentError("port", message)
    certificate, key = _path(given.get("tls_cert")), _path(given.get("tls_key"))
    if (certificate is None) != (key is None):
        message = "'--tls-cert' and '--tls-key' belong together"
        raise InvalidArgumentError("tls_cert", message, code="usage")
    only = given.get("only_project")
    return Options(
        host=given.get("host", "127.0.0.1"),
        port=port,
        read_only=given.get("read_only", False),
        only_project=None if only is None else parse_project_id(only),
        token_file=_path(given.get("token_file")),
        origins=given.get("origins", ()),
        public_url=given.get("public_url"),
        tls=None if certificate is None or key is None else (certificate, key),
        behind_proxy=given.get("behind_proxy"),
        agentmemory_open=given.get("agentmemory_open", False),
        log_json=given.get("log_format") == "json",
    )


def _background(call: Call, *, read_only: bool) -> "Background":
    from crdtmem import __version__, opening  # noqa: PLC0415 - loads the store
    from crdtmem.serve.run import Background  # noqa: PLC0415 - as above

    config = call.config

    def open_memory(project: str, lane: str) -> "Memory":
        return opening.open_with(
            config._replace(lane=lane, project=config.project._replace(id=project)),
            read_only=read_only,
            create=not read_only,
        )

    token, keyring = config.relay_token, config.relay_keyring
    return Background(
        store=config.store,
        project=config.project.id,
        user_name=default_lane(process_environment()).partition("@")[0],
        lane=config.lane,
        version=__version__,
        open_memory=open_memory,
        relay_token=None if token is None else token.reveal(),
        relay_keyring=None if keyring is None else keyring.reveal(),
    )


def _lead(call: Call, url: str, running: "Running", *, is_opened: bool) -> None:
    """Tell the URL, or open it."""
    if call.out.as_json:
        call.out.json(
            {
                "url": url,
                "base": running.base,
                "readOnly": running.read_only,
                "pid": running.pid,
            }
        )
    else:
        call.out.line(url)
    if is_opened:
        _open(call, url, running.port)


def _open(call: Call, url: str, port: int) -> None:
    environ = process_environment()
    if sys.platform.startswith("linux") and not any(map(environ.get, _DISPLAYS)):
        user = default_lane(environ)
        call.out.warn(
            f"there is no display here; run 'ssh -L {port}:127.0.0.1:{port} {user}'"
            " where there is one, and open the address there"
        )
        return
    import webbrowser  # noqa: PLC0415 - for this option only

    from crdtmem.serve.runfiles import folder_for, open_file  # noqa: PLC0415 - as above

    # What a browser is started with, everybody on the machine can read.
    name = secrets.token_urlsafe(16)
    path = open_file(folder_for(call.config.store), url, name)
    if not webbrowser.open(path.as_uri()):
        call.out.warn("no browser could be started; open the address in one")


def _print_unit(call: Call, system: str | None) -> None:
    from crdtmem.serve.units import launchd_unit, systemd_unit  # noqa: PLC0415 - for this action only

    program = shutil.which("crdtmem")
    start = [program] if program else [sys.executable, "-m", "crdtmem"]
    store = str(call.config.store.absolute())
    argv = [str(Path(start[0]).absolute()), *start[1:], "serve", "--port", "8790"]
    if call.config.sources["store"] != "default":
        argv += ["--store", store]
    if system == "systemd":
        unit = systemd_unit(argv)
    elif system == "launchd":
        unit = launchd_unit(argv, str(Path(store).with_name("serve.log")))
    else:
        message = "'serve unit' takes 'systemd' or 'launchd'"
        raise InvalidArgumentError("system", message, code="usage")
    if call.out.as_json:
        call.out.json({"system": system, "unit": unit})
    else:
        call.out.text(unit)


def _path(value: str | None) -> Path | None:
    return None if value is None else Path(value).absolute()
