"""The main job on real text: import, four writers, export, import again.

The Markdown of the npm client (its documentation, and that of what it ships) becomes
some 190 slots. For a minute four processes append lines to them, and edit and undo some
of those. Then every acknowledged write must be in the export, and a fresh store that
imports it must hold the same texts. Exits with 1 if anything is missing.

    python -m bench.realdocs [--seconds 60] [--folder DIR]
"""

import argparse
import json
import random
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from pathlib import Path

import crdtmem

PACKAGE = "npm@11.6.2"
WRITERS = 4
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--folder", type=Path)
    arguments.add_argument("--writer", type=int)
    arguments.add_argument("--store", type=Path)
    given = arguments.parse_args()
    if given.writer is not None:
        write(given.store, given.writer, given.seconds)
        return
    with tempfile.TemporaryDirectory() as scratch:
        found = run(Path(scratch), given.folder, given.seconds)
    print(json.dumps(found, indent=2))
    sys.exit(0 if found["lost"] == 0 and found["equal"] else 1)


def run(scratch: Path, folder: Path | None, seconds: float) -> dict[str, object]:
    folder = folder or fetch(scratch)
    store = scratch / "store.db"
    imported = crdtmem_command(store, "import", str(folder), "--json")
    labels = [slot["label"] for slot in imported["slots"]]
    with crdtmem.open(store, lane="setup", project="docs") as memory:
        for label in labels:
            memory.slot(label).set_meta(size_limit=1_000_000)
    start = time.perf_counter()
    acknowledged = gather(store, seconds)
    took = time.perf_counter() - start
    export = scratch / "export.jsonl"
    crdtmem_command(store, "export", str(export), "--json")
    lines = Counter(
        line for text in texts_in(export).values() for line in text.split("\n")
    )
    fresh = scratch / "fresh" / "store.db"
    crdtmem_command(fresh, "import", str(export), "--json")
    again = scratch / "again.jsonl"
    crdtmem_command(fresh, "export", str(again), "--json")
    with crdtmem.open(store, lane="setup", project="docs") as memory:
        healthy = memory.doctor(deep=True).ok
    return {
        "package": PACKAGE,
        "files": len(labels),
        "writers": WRITERS,
        "seconds": round(took, 1),
        "acknowledged": sum(acknowledged.values()),
        "kept": sum(lines[token] == 1 for token in expected(acknowledged)),
        "expected": len(expected(acknowledged)),
        "lost": sum(lines[token] != 1 for token in expected(acknowledged)),
        "equal": texts_in(export) == texts_in(again),
        "doctor": healthy,
    }


def expected(acknowledged: Counter[str]) -> set[str]:
    """Lines that must stand in the export: appended or edited, and not undone."""
    return {line for line, count in acknowledged.items() if count % 2}


def fetch(scratch: Path) -> Path:
    """Return a folder with the documentation of the pinned package."""
    RESULTS.mkdir(exist_ok=True)
    name = f"{PACKAGE.replace('@', '-')}.tgz"
    if not (RESULTS / name).exists():
        command = ["npm", "pack", "--silent", PACKAGE]
        subprocess.run(command, cwd=RESULTS, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(RESULTS / name) as archive:
        pages = [m for m in archive.getmembers() if is_page(m)]
        archive.extractall(scratch / "docs", members=pages, filter="data")
    return scratch / "docs" / "package"


def is_page(member: tarfile.TarInfo) -> bool:
    return member.isfile() and member.name.endswith(".md")


def crdtmem_command(store: Path, *arguments: str) -> dict[str, list[dict[str, str]]]:
    command = [sys.executable, "-m", "crdtmem", "--store", str(store)]
    command += ["--project", "docs", *arguments]
    found = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    # 10: an import that named what it had to skip.
    if found.returncode not in (0, 10):
        raise SystemExit(found.stderr)
    result: dict[str, list[dict[str, str]]] = json.loads(found.stdout)
    return result


def gather(store: Path, seconds: float) -> Counter[str]:
    """Run the writers and return how often each line was put in or taken out."""
    command = [sys.executable, "-m", "bench.realdocs", "--store", str(store)]
    command += ["--seconds", str(seconds), "--writer"]
    writers = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(WRITERS)
    ]
    acknowledged: Counter[str] = Counter()
    for writer in writers:
        out, _ = writer.communicate()
        if writer.returncode:
            raise SystemExit(f"a writer ended with {writer.returncode}")
        for line in out.splitlines():
            acknowledged.update(json.loads(line))
    return acknowledged


def write(store: Path, number: int, seconds: float) -> None:
    """Append, edit and undo in random slots; report each call after it returned."""
    chance = random.Random(number)
    until = time.monotonic() + seconds
    with crdtmem.open(store, lane=f"writer-{number}", project="docs") as memory:
        views = memory.slots("project", templates=False, content=False)
        slots = [memory.slot(view.label) for view in views]
        count = 0
        while time.monotonic() < until:
            slot = chance.choice(slots)
            count += 1
            line = f"writer {number} line {count} é漢🎉"
            slot.append(line)
            touched = [line]
            what = chance.random()
            if what < 0.2:
                slot.edit(line, f"{line} edited")
                touched = [f"{line} edited"]
            elif what < 0.3:
                slot.undo()
                touched = [line, line]
            print(json.dumps(touched), flush=True)


def texts_in(export: Path) -> dict[str, str]:
    records = map(json.loads, export.read_text(encoding="utf-8").splitlines())
    return {
        f"{r['scope']}/{r['label']}": r["content"]
        for r in records
        if r["type"] == "slot"
    }


if __name__ == "__main__":
    main()
