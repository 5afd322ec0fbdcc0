"""A whole server, gateway included, on a real socket, for a helper to use."""

import os
import signal
import threading
from concurrent.futures import Future
from typing import Any

from crdtmem import opening
from crdtmem.config import load_config
from crdtmem.serve.parts import make_parts
from crdtmem.serve.run import Background, Options, serve
from tests.serve.desk import PATIENCE_S, PROJECT

__all__ = ["while_serving"]


def while_serving(folder, act, **options):
    """Serve until ``act`` has done its work, then stop by a signal; return its result.

    The server runs in the calling thread, which has to be the main one.
    """
    store = folder / "store.db"
    outcome: Future[Any] = Future()
    helpers: list[threading.Thread] = []

    def open_memory(project, lane):
        config = load_config(
            options={"store": store, "project": project, "lane": lane},
            environ={"HOME": str(folder)},
            cwd=folder,
        )
        return opening.open_with(config, read_only=options.get("read_only", False))

    def work(ready):
        try:
            outcome.set_result(act(ready))
        except BaseException as exc:  # noqa: BLE001 - told in the main thread
            outcome.set_exception(exc)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def tell(ready):
        helpers.append(threading.Thread(target=work, args=(ready,)))
        helpers[0].start()

    background = Background(
        store=store,
        project=PROJECT,
        user_name="ana",
        lane="cli",
        version="1.2.3",
        open_memory=open_memory,
    )
    serve(Options(port=0, **options), background, make_parts, tell)
    helpers[0].join(PATIENCE_S)
    return outcome.result(0)
