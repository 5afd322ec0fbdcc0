"""``crdtmem sync``: link the memory to a relay, and keep them in step."""

import inspect
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from crdtmem.cli.grammar import Value
from crdtmem.cli.phrases import link_phrase
from crdtmem.cli.progress import progress
from crdtmem.cli.running import Call
from crdtmem.errors import InvalidArgumentError
from crdtmem.models import LinkStatus, SyncStatus
from crdtmem.scope import GLOBAL_NAMESPACE, parse_project_id
from crdtmem.waiting import wait_for

if TYPE_CHECKING:
    from crdtmem.sealing import Keyring
    from crdtmem.sync.linking import LinkRequest

__all__ = ["sync"]

OnOverlap = Literal["refuse", "merge", "rename"]

_TIMEOUT_S = 60.0


def sync(
    call: Call,
    *,
    action: str,
    url: str | None,
    namespace: str | None,
    local: str | None,
    token_file: str | None,
    encrypted: bool,
    keyring: str | None,
    on_overlap: OnOverlap | None,
    force: bool,
    timeout: float | None,
    clear_alarms: bool,
    progress_: str | None,
) -> None:
    """Do one of the things that sync is made of."""
    given: dict[str, Value] = {
        "url": url,
        "namespace": namespace,
        "local": local,
        "token_file": token_file,
        "encrypted": encrypted,
        "keyring": keyring,
        "on_overlap": on_overlap,
        "force": force,
        "timeout": timeout,
        "clear_alarms": clear_alarms,
        "progress_": progress_,
    }
    act = _ACTIONS[action]
    takes = inspect.signature(act).parameters
    _check(action, {name: v for name, v in given.items() if name not in takes})
    act(call, **{name: v for name, v in given.items() if name in takes})


def _check(action: str, stray: dict[str, Value]) -> None:
    """Refuse what was given and belongs to another action."""
    for name, value in stray.items():
        # A flag that was not given is False.
        if value is not None and value is not False:
            raise InvalidArgumentError(
                name,
                f"'sync {action}' takes no {_spelled(name)}",
                code="usage",
                hint="run 'crdtmem sync --help' to see what belongs to what",
            )


def _spelled(name: str) -> str:
    return "URL" if name == "url" else "--" + name.rstrip("_").replace("_", "-")


def _local(call: Call, local: str | None) -> str:
    """Return the namespace that is meant: by default the project's."""
    if local is None:
        return call.config.project.id
    return local if local == GLOBAL_NAMESPACE else parse_project_id(local)


def _token(call: Call) -> str | None:
    found = call.config.relay_token
    return None if found is None else found.reveal()


def _keyring_text(call: Call) -> str | None:
    found = call.config.relay_keyring
    return None if found is None else found.reveal()


def _keyring(call: Call) -> "Keyring | None":
    """Return the keys that the environment holds."""
    from crdtmem.sync.keyring import process_keyring  # noqa: PLC0415 - as below

    text = _keyring_text(call)
    return None if text is None else process_keyring(text)


def _with_keys(
    call: Call, request: "LinkRequest", keyring: str | None
) -> "LinkRequest":
    if not request.is_encrypted:
        raise InvalidArgumentError(
            "keyring", "'--keyring' belongs to '--encrypted'", code="usage"
        )
    return request._replace(
        keyring_file=_keyring_file(call, keyring), keyring=_keyring(call)
    )


def _keyring_file(call: Call, given: str | None) -> Path | None:
    """Return which file a link is to have its keys from; None: the environment."""
    from crdtmem.cli.key import default_keyring  # noqa: PLC0415 - as below

    if given is not None:
        return Path(given).absolute()
    if call.config.relay_keyring is not None:
        return None
    return call.config.relay_keyring_file or default_keyring()


def _link(
    call: Call,
    *,
    url: str | None,
    namespace: str | None,
    local: str | None,
    token_file: str | None,
    encrypted: bool,
    keyring: str | None,
    on_overlap: OnOverlap | None,
    progress_: str | None,
) -> None:
    # Everything of sync is slow to load, and only its own commands need it.
    from crdtmem.sync.linking import LinkRequest, default_remote, link_namespace  # noqa: PLC0415 - see above

    here = _local(call, local)
    file = call.config.relay_token_file
    request = LinkRequest(
        local=here,
        remote=default_remote(here) if namespace is None else namespace,
        url=_url(call, url),
        token_file=file if token_file is None else Path(token_file).absolute(),
        token=_token(call),
        is_encrypted=encrypted,
    )
    if encrypted or keyring is not None:
        request = _with_keys(call, request, keyring)
    memory = call.open("write")
    with progress(call.out, "looking at the relay", progress_):
        renamed = link_namespace(
            memory.store,
            request,
            lane=memory.lane,
            on_overlap=on_overlap or "refuse",
            timeout_s=_TIMEOUT_S,
        )
    for old, new in renamed:
        call.out.warn(f"the local slot '{old}' is '{new}' now")
    link = next(x for x in memory.status().sync.links if x.local == here)
    if call.out.as_json:
        call.out.json(link)
        return
    how = ", encrypted" if encrypted else ""
    call.out.line(f"'{link.local}' is linked to '{link.remote}' at {link.url}{how}")
    call.out.note("'crdtmem sync once' syncs it now, 'crdtmem sync start' from now on")


def _url(call: Call, url: str | None) -> str:
    from crdtmem.config.keys import known_key  # noqa: PLC0415 - for this action only

    if url is not None:
        return str(known_key("relay.url").parse(url, "URL"))
    if call.config.relay_url is None:
        raise InvalidArgumentError(
            "url",
            "there is no relay to link to",
            code="usage",
            hint="give its URL, or run 'crdtmem config set relay.url wss://HOST'",
        )
    return call.config.relay_url


def _unlink(call: Call, *, local: str | None, force: bool) -> None:
    from crdtmem.store.links import find_link, remove_link  # noqa: PLC0415 - slow to load

    store = call.memory.store
    link = find_link(store, _local(call, local))
    remove_link(store, link, force=force)
    told = {"local": link.namespace, "remote": link.remote, "url": link.url}
    if call.out.as_json:
        call.out.json({**told, "unlinked": True})
    else:
        call.out.line(f"'{link.namespace}' is linked no more; its slots stay")


def _once(call: Call, *, timeout: float | None, progress_: str | None) -> None:
    from crdtmem.sync.once import sync_once  # noqa: PLC0415 - slow to load

    memory = call.memory
    with progress(call.out, "syncing", progress_):
        sync_once(
            memory.store,
            token=_token(call),
            keyring=_keyring(call),
            timeout_s=_TIMEOUT_S if timeout is None else timeout,
        )
    _print(call, memory.status().sync, is_answer=False)


def _start(call: Call) -> None:
    """Sync until the process is told to end."""
    from crdtmem.sync.thread import SyncThread  # noqa: PLC0415 - slow to load

    ended = threading.Event()
    memory = call.memory
    thread = SyncThread(
        memory.path, token=_token(call), keyring_text=_keyring_text(call)
    )
    lease = memory.status().sync.lease
    if lease.held:
        other = f"process {lease.pid} ({lease.command})"
        call.out.note(f"{other} syncs the store; this one waits for it to end")
    before = signal.signal(signal.SIGTERM, lambda *_: ended.set())
    thread.start()
    call.out.note("syncing; Ctrl-C stops it")
    try:
        wait_for(ended)
    finally:
        thread.stop()
        signal.signal(signal.SIGTERM, before)


def _status(call: Call, *, clear_alarms: bool) -> None:
    if clear_alarms:
        from crdtmem.store import links  # noqa: PLC0415 - slow to load

        links.clear_alarms(call.memory.store)
    _print(call, call.memory.status().sync, is_answer=True)


def _print(call: Call, status: SyncStatus, *, is_answer: bool) -> None:
    if call.out.as_json:
        call.out.json(status)
        return
    if call.out.is_quiet and not is_answer:
        return
    if not status.links:
        call.out.note("no namespace is linked; 'crdtmem sync link URL' links one")
    for link in status.links:
        _print_link(call, link)
    lease = status.lease
    if is_answer and lease.held:
        call.out.line(f"synced by process {lease.pid} ({lease.command})")


def _print_link(call: Call, link: LinkStatus) -> None:
    call.out.line(link_phrase(link))
    call.out.line(f"  '{link.remote}' at {link.url}, cursor {link.cursor}")
    if link.last_in_sync_at is not None:
        call.out.line(f"  in step at {link.last_in_sync_at}")
    if link.last_error is not None:
        fault = link.last_error
        call.out.line(f"  {fault.code}: {fault.message} ({fault.at})", "yellow")
    if link.locked:
        what = "1 record waits" if link.locked == 1 else f"{link.locked} records wait"
        call.out.line(f"  {what} for a key: 'crdtmem key import' brings it", "yellow")
    for label in link.held:
        call.out.line(f"  records wait for {label}", "yellow")
    for label in link.blocked:
        call.out.line(f"  the relay does not take {label}", "yellow")
    for alarm in link.alarms:
        text = f"  alarm {alarm.code}: {alarm.detail} ({alarm.at})"
        call.out.line(text, "red")


_ACTIONS: dict[str, Callable[..., None]] = {
    "link": _link,
    "unlink": _unlink,
    "start": _start,
    "once": _once,
    "status": _status,
}
