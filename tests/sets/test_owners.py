import asyncio
import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from crdtmem.errors import OwnerThreadError
from crdtmem.sets import no_owner_check, owner_task, owner_thread


def elsewhere(call):
    """Return what a call returns or raises in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).exception()


def outcome(check):
    """Return the code of what a check raises; None where it lets pass."""
    try:
        check()
    except OwnerThreadError as error:
        return error.code
    return None


def test_the_thread_that_asks_may_pass_and_others_may_not():
    check = owner_thread()

    assert check() is None
    error = elsewhere(check)
    assert isinstance(error, OwnerThreadError)
    assert isinstance(error, RuntimeError)
    assert (error.code, "owner thread" in str(error)) == ("not-owner-thread", True)


@pytest.mark.requirement("sets-S7")
def test_a_thread_that_has_the_number_of_one_that_ended_is_not_the_owner():
    found, tried = {}, {}

    def own():
        found[threading.get_ident()] = owner_thread()

    def try_it():
        check = found.get(threading.get_ident(), no_owner_check)
        tried[threading.get_ident() in found] = outcome(check)

    # Numbers are given again at once where nothing else runs; a few tries are enough.
    while True not in tried and len(found) < 1_000:
        for work in (own, try_it):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

    assert tried[True] == "not-owner-thread"


def test_everybody_passes_where_nobody_owns():
    assert outcome(no_owner_check) is None
    assert elsewhere(no_owner_check) is None


@pytest.mark.requirement("sets-S7")
async def test_another_task_is_not_the_owner_nor_another_thread():
    check = owner_task()

    assert check() is None
    (error,) = await asyncio.gather(asyncio.to_thread(check), return_exceptions=True)
    assert isinstance(error, OwnerThreadError)

    async def other():
        check()

    with pytest.raises(OwnerThreadError, match="thread and task"):
        await asyncio.ensure_future(other())


def test_a_task_that_is_gone_owns_nothing_any_more():
    async def own():
        return owner_task()

    check = asyncio.run(own())
    gc.collect()

    with pytest.raises(OwnerThreadError):
        check()


def test_without_a_task_the_owner_is_the_thread_that_runs_none():
    check = owner_task()

    async def other():
        check()

    assert check() is None
    with pytest.raises(OwnerThreadError):
        asyncio.run(other())


def test_nobody_runs_a_task_before_asyncio_is_loaded(monkeypatch):
    monkeypatch.delitem(sys.modules, "asyncio")

    assert owner_task()() is None
