"""Opening a document with a long past: squashed, and record by record.

20,000 lines of one replica, trimmed to 1,800 units as an agent would. The baseline is
pycrdt alone, which applies the same updates one by one; it checks nothing of them.
"""

from pathlib import Path

from pycrdt import Doc, Text

from bench.running import Effort, Findings, run
from bench.timing import Comparison, Count, compare
from bench.workload import LINE_CHARS, folder, lines, open_store
from crdtmem.doc.delta import Splice
from crdtmem.memory import Memory
from crdtmem.store.documents import load_doc, squash
from crdtmem.store.slots import save_slot
from crdtmem.store.write import Transaction

__all__ = ["measure"]

LABEL = "pending_items"


def measure(effort: Effort) -> Findings:
    """Load the document from its records, then from the checkpoint made of them."""
    records = effort.size(20_000, 500)
    with folder() as place, _with_records(place / "store.db", records) as memory:
        updates = _updates(memory)
        rounds = min(effort.rounds_of(), 15)
        plain = _against_pycrdt(memory, updates, "merge-records-one-by-one", rounds)
        with memory.store.writing() as transaction:
            squash(transaction.connection, 1, transaction.replica, 1 << 40)
        again = _against_pycrdt(memory, updates, "merge-checkpointed", rounds)
        with memory.store.reading() as connection:
            state: bytes = connection.execute("SELECT state FROM doc").get
    note = "written by the store's own steps, without history, which would squash them"
    return Findings(
        [plain, again],
        [
            Count("merge-records", len(updates), "records", note=note),
            Count("merge-updates-size", sum(map(len, updates)), "bytes"),
            Count("merge-checkpoint-size", len(state), "bytes"),
        ],
    )


def _with_records(path: Path, records: int) -> Memory:
    memory = open_store(path, durability="normal")
    memory.slot(LABEL).append(next(lines(5)))
    words = lines(6)
    for first in range(0, records, 500):
        with memory.store.writing() as transaction:
            for _ in range(first, min(first + 500, records)):
                _write(transaction, next(words))
    return memory


def _write(transaction: Transaction, line: str) -> None:
    row = transaction.slot("bench", LABEL)
    if row is None:
        raise LookupError(LABEL)
    document = transaction.document(row)
    transaction.edited.add(row.doc)
    end = len(row.file)
    new = Splice(end, end, line + "\n")
    is_full = end + LINE_CHARS > 1_800
    delta = (Splice(0, end, ""), new) if is_full else (new,)
    content = document.edit(delta, {})
    lsn = transaction.log(row.doc, content, delta, lane="bench", operation="append")
    transaction.remember(row.doc, document)
    save_slot(transaction.connection, row._replace(file=document.file, lsn=lsn))


def _updates(memory: Memory) -> list[bytes]:
    with memory.store.reading() as connection:
        rows = connection.execute("SELECT content FROM log ORDER BY lsn")
        return [bytes(content) for (content,) in rows]


def _against_pycrdt(
    memory: Memory, updates: list[bytes], name: str, rounds: int
) -> Comparison:
    def ours() -> None:
        with memory.store.reading() as connection:
            load_doc(connection, 1, bytes(16))

    def theirs() -> None:
        doc: Doc[Text] = Doc()
        for update in updates:
            doc.apply_update(update)

    against = "pycrdt, apply_update one by one"
    return compare(name, ours, theirs, against=against, rounds=rounds)


if __name__ == "__main__":
    run(measure)
