"""Many processes, one store: nothing lost, nothing doubled, nobody stuck.

The children are shared by all tests of this file, and each runs one script after the
other. Barriers fix who starts together; where a test needs one process inside a write,
it stops that process at a kill point.
"""

import asyncio
import hashlib
import os
import random
import signal
from pathlib import Path

import apsw
import pytest

import crdtmem.aio
from crdtmem.headroom import content_hash
from tests import scripts
from tests.child import barrier
from tests.conftest import PROFILE
from tests.oracle import judge, token
from tests.scenarios import opened
from tests.scratch import scratch

pytestmark = pytest.mark.process

APPENDS = {"default": 25, "campaign": 200}[PROFILE]
MANY_APPENDS = {"default": 25, "campaign": 1_000}[PROFILE]
ROUNDS = {"default": 3, "campaign": 100}[PROFILE]
KILLS = {"default": 10, "campaign": 200}[PROFILE]
LOG_BYTES = 66 * 2**20
"""The log is emptied from 64 MiB on; one write may come on top."""


@pytest.fixture
def folder():
    with scratch() as path:
        yield path


@pytest.fixture
def path(folder):
    return str(folder / "store.db")


def make_slot(path, content="", *, history_keep=20):
    with opened(path) as memory:
        memory.configure(history_keep=history_keep)
        memory.create("plan", content, size_limit=1_000_000)


def check_store(path, label="plan", *, rev=None):
    """Hold the store against itself; return the slot's view."""
    with opened(path) as memory:
        slot = memory.slot(label)
        view = slot.read()
        ids = [entry.id for entry in slot.history(1_000).entries]
        report = memory.doctor()
    scripts.check_view(view.to_dict(), 0)
    assert len(set(ids)) == len(ids)
    assert report.ok, report
    assert rev in (None, view.rev)
    return view


def start_call(child, path, verb, slot, **arguments):
    child.start(scripts.call, path=path, verb=verb, slot=slot, **arguments)


def call(child, path, verb, slot, **arguments):
    start_call(child, path, verb, slot, **arguments)
    barrier([child])
    return child.result()


def damage_newest_record(path, label):
    """Flip a byte of the newest update of a slot in the closed file."""
    connection = apsw.Connection(path)
    ((lsn, content),) = connection.execute(
        "select lsn, content from log join doc using (doc) where name = ?"
        " order by lsn desc limit 1",
        (label,),
    )
    damaged = content[:-1] + bytes([content[-1] ^ 1])
    connection.execute("update log set content = ? where lsn = ?", (damaged, lsn))
    connection.close()


def tokens_of(size, count):
    return {
        f"lane-{n}": [token(f"lane-{n}", i) for i in range(count)] for n in range(size)
    }


def files_of(directory):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in Path(directory).iterdir()
    }


@pytest.mark.requirement("slots-C1")
def test_eight_processes_that_find_no_store_make_one_and_all_succeed(crew, folder):
    children = crew(8)
    pattern = str(folder / "store-{}.db")
    for number, child in enumerate(children):
        child.start(
            scripts.append_in_rounds,
            path=pattern,
            lane=f"lane-{number}",
            rounds=ROUNDS,
        )
    for _ in range(ROUNDS):
        barrier(children)
    for child in children:
        child.result()

    for number in range(ROUNDS):
        view = check_store(pattern.format(number), "persona", rev=8)
        lanes = {f"lane-{n}": [token(f"lane-{n}", number)] for n in range(8)}
        assert judge(view.content, lanes).faults == {}


@pytest.mark.requirement("slots-C2", "P2", "testing-F12")
@pytest.mark.parametrize("size", [4, 8])
def test_appends_of_many_processes_stand_once_whole_and_in_order(crew, path, size):
    make_slot(path)
    children = crew(size)
    for number, child in enumerate(children):
        child.start(
            scripts.append_tokens,
            path=path,
            lane=f"lane-{number}",
            count=MANY_APPENDS,
            reopens=number % 2 == 0,
        )
    barrier(children)
    barrier(children, "finished")
    hashes = {child.result()["contentHash"] for child in children}
    view = check_store(path, rev=size * MANY_APPENDS)

    assert judge(view.content, tokens_of(size, MANY_APPENDS)).faults == {}
    assert hashes == {view.content_hash}
    with opened(path) as memory:
        assert len(memory.slot("plan").history().entries) == 20


@pytest.mark.requirement("slots-C3", "P1", "testing-F1")
def test_a_writer_killed_at_random_loses_nothing_that_it_reported(crew, path):
    make_slot(path)
    (child,) = crew(1)
    chance = random.Random(3)
    tokens, acknowledged = {}, []
    for number in range(KILLS):
        lane = f"round-{number}"
        tokens[lane] = [token(lane, i) for i in range(50)]
        arguments = {"path": path, "lane": lane, "count": 50}
        child.start(scripts.forked, script="append_tokens", arguments=arguments)
        pid = child.wait_for("forked")["pid"]
        barrier([child])
        # One at least: a fork killed before it took the go leaves it to its parent.
        for _ in range(chance.randrange(1, 20)):
            child.wait_for("appended")
        os.kill(pid, signal.SIGKILL)

        assert child.result() == -signal.SIGKILL
        acknowledged += [
            event["token"]
            for event in child.events
            if event["event"] == "appended" and event["token"] in tokens[lane]
        ]
    view = check_store(path)

    verdict = judge(view.content, tokens, acknowledged=acknowledged)
    assert verdict.faults == {}
    assert len(acknowledged) <= len(verdict.stable) <= len(acknowledged) + KILLS


@pytest.mark.requirement("slots-C4")
def test_the_next_writer_goes_on_when_the_lock_holder_is_killed(crew, nursery, path):
    make_slot(path)
    holder, (waiter,) = nursery.spawn(), crew(1)
    holder.start(scripts.hold_at, path=path, point="write.before-commit", text="never")
    holder.wait_for("holding")
    waiter.start(scripts.append_in_line, path=path, text="later", busy_timeout=30)
    waiter.wait_for("waiting")
    status = holder.kill()

    assert status == -signal.SIGKILL
    assert waiter.result()["content"] == "later"
    assert check_store(path, rev=1).content == "later"


@pytest.mark.requirement("slots-C5", "testing-F12")
def test_a_busy_store_names_its_holder_and_is_read_meanwhile(crew, path, folder):
    make_slot(path, "base")
    holder, writer = crew(2)
    holder.start(scripts.hold_at, path=path, point="write.before-commit", text="held")
    holder.wait_for("holding")
    files = set(os.listdir(folder))
    refused = call(
        writer, path, "append", "plan", text="x", options={"busy_timeout": 0.3}
    )
    read = call(writer, path, "read", "plan")
    files_meanwhile = set(os.listdir(folder))
    holder.go()
    holder.result()
    retried = call(writer, path, "append", "plan", text="x")

    assert refused["error"]["code"] == "store-busy"
    assert refused["error"]["details"]["pid"] == holder.pid
    assert str(holder.pid) in refused["error"]["message"]
    assert refused["error"]["details"]["command"] in refused["error"]["message"]
    assert (read["content"], read["rev"]) == ("base", 0)
    assert files_meanwhile == files
    assert (retried["content"], retried["rev"]) == ("base\nheld\nx", 2)


@pytest.mark.requirement("slots-C6")
def test_readers_meanwhile_see_whole_texts_in_the_order_of_their_revs(crew, path):
    make_slot(path)
    children = crew(8)
    for child in children[:4]:
        child.start(scripts.read_until, path=path, rev=4 * APPENDS)
    for number, child in enumerate(children[4:]):
        child.start(
            scripts.append_tokens, path=path, lane=f"lane-{number}", count=APPENDS
        )
    barrier(children)
    barrier(children[4:], "finished")
    reads = [child.result() for child in children[:4]]
    view = check_store(path, rev=4 * APPENDS)

    assert judge(view.content, tokens_of(4, APPENDS)).faults == {}
    assert all(count >= 1 for count in reads)


@pytest.mark.requirement("slots-C7")
def test_a_viewer_follows_every_change_and_does_not_keep_the_log_long(crew, path):
    make_slot(path, "x" * 20_000)
    children = crew(5)
    children[0].start(scripts.watch_until, path=path, rev=4 * APPENDS)
    for number, child in enumerate(children[1:]):
        child.start(
            scripts.append_tokens, path=path, lane=f"lane-{number}", count=APPENDS
        )
    barrier(children)
    barrier(children[1:], "finished")
    shown = children[0].result()
    log_bytes = Path(f"{path}-wal")
    view = check_store(path, rev=4 * APPENDS)

    assert shown[-1] == 4 * APPENDS
    assert not log_bytes.exists() or log_bytes.stat().st_size < LOG_BYTES
    lanes = tokens_of(4, APPENDS)
    assert judge(view.content, lanes, other_lines=["x" * 20_000]).faults == {}


@pytest.mark.requirement("slots-C8", "P3")
def test_of_eight_replaces_of_one_rev_exactly_one_succeeds(crew, path):
    make_slot(path)
    children = crew(8)
    for number, child in enumerate(children):
        child.start(
            scripts.replace_in_rounds, path=path, lane=f"lane-{number}", rounds=ROUNDS
        )
    for number in range(ROUNDS):
        barrier(children)
        answers = [child.wait_for("answered")["result"] for child in children]
        barrier(children, "answered-all")
        (won,) = [answer for answer in answers if "error" not in answer]
        lost = [answer["error"] for answer in answers if "error" in answer]

        assert won["rev"] == number + 1
        assert [error["code"] for error in lost] == ["conflict"] * 7
        assert {e["details"]["current"]["rev"] for e in lost} == {number + 1}
        assert all(f"+{won['content']}" in e["details"]["diff"] for e in lost)
    for child in children:
        child.result()

    check_store(path, rev=ROUNDS)


@pytest.mark.requirement("slots-C9", "P3")
def test_a_rewrite_from_an_older_text_keeps_every_append(crew, path):
    rounds = {"default": 15, "campaign": 50}[PROFILE]
    make_slot(path, "title 0", history_keep=1_000)
    children = crew(3)
    children[0].start(scripts.condense, path=path, rounds=rounds)
    for number, child in enumerate(children[1:]):
        child.start(
            scripts.append_tokens, path=path, lane=f"lane-{number}", count=APPENDS
        )
    barrier(children)
    barrier(children[1:], "finished")
    children[0].result()
    view = check_store(path, rev=rounds + 2 * APPENDS)

    title = f"title {rounds}"
    lanes = tokens_of(2, APPENDS)
    assert judge(view.content, lanes, other_lines=[title]).faults == {}
    assert view.content.startswith(f"{title}\n")


@pytest.mark.requirement("slots-C10", "P7")
def test_one_request_of_eight_processes_is_written_once(crew, path):
    make_slot(path)
    children = crew(8)
    for child in children:
        start_call(child, path, "append", "plan", text="once", request_id="r-1")
    barrier(children)
    results = [child.result() for child in children]
    replayed = [result.pop("replayed", False) for result in results]
    view = check_store(path, rev=1)

    assert view.content == "once"
    assert sorted(replayed) == [False] + [True] * 7
    assert [result["historyId"] for result in results] == [results[0]["historyId"]] * 8
    assert all(result == results[0] for result in results)


@pytest.mark.requirement("slots-C11")
def test_of_eight_creates_of_one_label_exactly_one_succeeds(crew, path):
    opened(path).close()
    children = crew(8)
    for number, child in enumerate(children):
        start_call(child, path, "create", None, label="new", content=f"of {number}")
    barrier(children)
    results = [child.result() for child in children]
    (made,) = [result for result in results if "error" not in result]
    codes = [result["error"]["code"] for result in results if "error" in result]
    view = check_store(path, "new", rev=0)

    assert codes == ["slot-exists"] * 7
    assert view.content == made["content"]


@pytest.mark.requirement("slots-C12", "testing-F11")
def test_both_sides_of_a_fork_write_through_their_own_connection(crew, path):
    make_slot(path)
    (child,) = crew(1)
    count = 4 * APPENDS
    status = child.run(scripts.append_from_both_sides_of_a_fork, path=path, count=count)
    view = check_store(path, rev=2 * count - 1)

    lanes = {
        "parent": [token("parent", i) for i in range(count)],
        "child": [token("child", i) for i in range(1, count)],
    }
    assert status == 0
    assert judge(view.content, lanes).faults == {}


@pytest.mark.requirement("slots-C13")
def test_reading_an_up_to_date_store_changes_not_one_byte(crew, path, folder):
    make_slot(path, "text")
    (child,) = crew(1)
    child.run(scripts.read_and_list, path=path)
    before = files_of(folder)
    child.run(scripts.read_and_list, path=path)

    assert files_of(folder) == before


@pytest.mark.parametrize(
    "wrong", [{"size": 3}, {"contentHash": "0" * 16}, {"rev": 4}, {"content": "aé\n"}]
)
def test_a_view_that_does_not_fit_itself_is_found(wrong):
    view = {
        "content": "aé",
        "size": 2,
        "contentHash": content_hash("aé")[:16],
        "rev": 5,
    }

    assert scripts.check_view(view, 5) == 5
    with pytest.raises(AssertionError):
        scripts.check_view(view | wrong, 5)


@pytest.mark.requirement("slots-C14")
async def test_a_cancelled_append_is_written_whole_or_not_at_all(path):
    make_slot(path)
    chance = random.Random(14)
    tokens = [token("async", number) for number in range(100)]
    returned = []
    async with await crdtmem.aio.open(path, lane="async", project="p") as memory:
        slot = await memory.slot("plan")

        async def append(text):
            await slot.append(text)
            returned.append(text)

        tasks = [asyncio.create_task(append(text)) for text in tokens]
        while not all(task.done() for task in tasks):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            tasks = [task for task in tasks if not task.done()]
            for task in chance.sample(tasks, min(2, len(tasks))):
                task.cancel()
        last = await slot.append("the handle works")
    view = check_store(path)

    lanes = {"async": tokens}
    verdict = judge(
        view.content, lanes, acknowledged=returned, other_lines=["the handle works"]
    )
    assert verdict.faults == {}
    assert 0 < len(returned) <= len(verdict.stable) < len(tokens)
    assert last.content == view.content


@pytest.mark.requirement("slots-C14")
def test_eight_threads_share_a_handle(crew, path):
    make_slot(path)
    (child,) = crew(1)
    child.run(scripts.append_from_threads, path=path, threads=8, count=APPENDS)
    view = check_store(path, rev=8 * APPENDS)

    lanes = {
        f"thread-{n}": [token(f"thread-{n}", i) for i in range(APPENDS)]
        for n in range(8)
    }
    assert judge(view.content, lanes).faults == {}


@pytest.mark.requirement("slots-C15", "P8", "testing-F5")
def test_a_damaged_record_stops_its_slot_and_no_other(crew, path):
    make_slot(path, "good")
    with opened(path) as memory:
        memory.slot("plan").append("more")
        memory.create("notes", "fine")
    damage_newest_record(path, "plan")
    children = crew(2)
    refused = [call(child, path, "append", "plan", text="x") for child in children]
    read = call(children[0], path, "read", "plan")
    appended = call(children[1], path, "append", "notes", text="x")

    assert [one["error"]["code"] for one in refused] == ["slot-quarantined"] * 2
    assert (read["content"], read["quarantined"]) == ("good\nmore", True)
    assert appended["content"] == "fine\nx"


@pytest.mark.requirement("slots-C16")
def test_an_idle_handle_appends_to_the_newest_text(crew, path):
    count = {"default": 200, "campaign": 2_000}[PROFILE]
    make_slot(path)
    idle, writer = crew(2)
    idle.start(scripts.append_after_the_rest, path=path, text="after all")
    idle.wait_for("ready")
    writer.start(scripts.append_tokens, path=path, lane="lane-0", count=count)
    barrier([writer])
    barrier([writer], "finished")
    writer.result()
    idle.go()
    result = idle.result()
    view = check_store(path, rev=count + 1)

    assert (result["rev"], result["previousRev"]) == (count + 1, count)
    assert view.content.endswith("\nafter all")
    lanes = tokens_of(1, count)
    assert judge(view.content, lanes, other_lines=["after all"]).faults == {}
