"""A process that takes and releases a store's lock as it is told."""

import subprocess
import sys

__all__ = ["Child"]

# Obeys one word a line, and answers each line with one.
OBEY = """
import os, sys
from pathlib import Path
from crdtmem.store.lock import StoreLock
path = sys.argv[1]
sys.argv = ["/opt/bin/crdtmem", "append", "plan", "a secret"]
lock = StoreLock(Path(path))

def say(answer):
    # In one piece: a forked child speaks through the same pipe.
    os.write(1, f"{answer}\\n".encode())

def count(times):
    counter = Path(path + ".count")
    for _ in range(times):
        with lock.held(30):
            counter.write_text(str(int(counter.read_text()) + 1))

def share(total):
    # What a durable commit is: a write, and a wait for the disk.
    mine, last = 0, -1
    with open(path + ".log", "r+b") as log:
        while last < total:
            with lock.held(30):
                last = log.seek(0, 2)
                log.write(b"x")
                log.flush()
                os.fsync(log.fileno())
            mine += 1
    return mine

def fork():
    if pid := os.fork():
        return pid
    try:
        lock.acquire(0)
        answer = "had"
    except TimeoutError:
        answer = "busy"
    say(answer)
    os.read(0, 1)
    os._exit(0)

for line in sys.stdin:
    match line.split():
        case ["acquire"]:
            answer = lock.acquire(30)
        case ["release"]:
            answer = lock.release()
        case ["count", times]:
            answer = count(int(times))
        case ["share", total]:
            answer = share(int(total))
        case ["fork"]:
            answer = fork()
    say("done" if answer is None else answer)
lock.close()
"""


class Child:
    """Another process, which does as it is told."""

    def __init__(self, path):
        self.process = subprocess.Popen(
            [sys.executable, "-c", OBEY, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        self.pid = self.process.pid
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.orders, self.answers = self.process.stdin, self.process.stdout

    def start(self, order):
        self.orders.write(order + "\n")
        self.orders.flush()

    def answer(self):
        return self.answers.readline().strip()

    def do(self, order):
        self.start(order)
        return self.answer()

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        self.process.kill()
        self.process.communicate()
