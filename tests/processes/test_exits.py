"""What becomes of events that were not flushed, by the end of the program, in processes; compared with the page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import accel
from tests.docs.pages import page_named, table_rows

EVENTS = 20
SECONDS = 60.0

PRELUDE = """
import asyncio, atexit, gc, multiprocessing, os, signal, sys, threading
import accel
from accel import ConnectionSettings
from accel.streams.settings import SegmentsSettings

LATER = ConnectionSettings(segments=SegmentsSettings(linger_seconds=3600.0))  # so that no event is stored by itself

def connected():
    return accel.connect(sys.argv[1], settings=LATER)

def written(streams=None):
    writer = (streams or connected()).writer("shop", "orders")
    for number in range(20):
        writer.write(b"an order", key="anna")
    return writer

def child(url):
    sys.argv = ["child", url]
    global writer
    writer = written()
"""

STORED, SAID, LOST = "stored", "lost, with a warning", "lost"

ENDS: dict[str, tuple[str, str]] = {
    "the last line, `sys.exit()`, an exception": (
        STORED,
        """
writer = written()
---
writer = written()
sys.exit(0)
---
writer = written()
sys.exit(3)
---
writer = written()
raise LookupError
        """,
    ),
    "Ctrl-C; `SIGTERM` with a handler that calls `sys.exit()`": (
        STORED,
        """
writer = written()
os.kill(os.getpid(), signal.SIGINT)
signal.pause()
---
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
writer = written(); os.kill(os.getpid(), signal.SIGTERM); signal.pause()
        """,
    ),
    "the end of the main thread, while other threads still write": (
        STORED,
        """
threading.Thread(target=lambda: (threading.main_thread().join(), globals().update(w=written()))).start()
---
writer = []
thread = threading.Thread(target=lambda: (writer.append(written()), threading.Event().wait()), daemon=True)
thread.start()
while not writer: pass
---
writer = []
def work():
    writer.append(written())
    raise SystemExit(3)
thread = threading.Thread(target=work)
thread.start(); thread.join()
        """,
    ),
    "`flush` or `close` in a handler of `atexit`; writing in one, if `accel` was imported before it was registered": (
        STORED,
        """
streams = connected()
atexit.register(streams.close)
writer = written(streams)
---
atexit.register(lambda: writer.flush())
writer = written()
---
streams = connected()
writer = streams.writer('shop', 'orders')
atexit.register(lambda: written(streams))
        """,
    ),
    "a `with` block of the connection that ends, also by `sys.exit()`, Ctrl-C, a cancelled task, a closed generator": (
        STORED,
        """
with connected() as streams: written(streams)
---
with connected() as streams: written(streams); sys.exit(0)
---
with connected() as streams: written(streams); raise KeyboardInterrupt
---
def generator():
    with connected() as streams:
        written(streams)
        yield
opened = generator(); next(opened); opened.close(); os._exit(0)
---
async def task(done):
    async with connected() as streams:
        writer = await streams.writer('shop', 'orders')
        await writer.write_many([(b'an order', 'anna')] * 20)
        done.set()
        await asyncio.Event().wait()
async def main():
    running = asyncio.create_task(task(done := asyncio.Event()))
    await done.wait()
    running.cancel()
    await asyncio.wait([running])
    os._exit(0)
asyncio.run(main())
        """,
    ),
    "a writer and its connection that are dropped without `close`": (
        STORED,
        """
writer = written()
del writer
gc.collect()
        """,
    ),
    "a child of `multiprocessing` that opened its own connection": (
        STORED,
        """
if __name__ == '__main__':
    context = multiprocessing.get_context('fork')
    process = context.Process(target=child, args=(sys.argv[1],)); process.start(); process.join()
---
if __name__ == '__main__':
    context = multiprocessing.get_context('spawn')
    process = context.Process(target=child, args=(sys.argv[1],)); process.start(); process.join()
---
if __name__ == '__main__':
    context = multiprocessing.get_context('forkserver')
    process = context.Process(target=child, args=(sys.argv[1],)); process.start(); process.join()
        """,
    ),
    "a forked child of a process that writes; only the parent stores its own events": (
        STORED,
        """
writer = written()
if os.fork() == 0: sys.exit(0)
os.wait(); assert writer.is_left; writer.flush()
---
streams = connected(); writer = written(streams)
if os.fork() == 0: del writer, streams; gc.collect(); os._exit(0)
os.wait(); assert writer.is_left; streams.close()
        """,
    ),
    "a `with` block of the connection that ends by another exception; `stop()`": (
        SAID,
        """
with connected() as streams: written(streams); raise LookupError
---
streams = connected()
writer = written(streams)
streams.stop()
---
async def main():
    async with connected() as streams:
        writer = await streams.writer('shop', 'orders')
        await writer.write_many([(b'an order', 'anna')] * 20)
        raise LookupError
asyncio.run(main())
        """,
    ),
    "a store that refuses, or does not answer within 10 s, at the end of the program": (
        SAID,
        """
import loaders.lifetime
loaders.threads.EXIT_SECONDS = 0.1
from accel.testing.stores import *
from loaders.store import open_store
class Hangs:
    is_hanging = False
    def __init__(self, store): self._store = store
    def __getattr__(self, name):
        if self.is_hanging: threading.Event().wait()
        return getattr(self._store, name)
store = Hangs(open_store(sys.argv[1])); writer = written(accel.connect(store, settings=LATER))
store.is_hanging = True
---
import loaders.threads
loaders.threads.EXIT_SECONDS = 0.1
class Hangs:
    @property
    def is_left(self): threading.Event().wait()
    def finish(self): pass
    def tell_left(self, why): threading.Event().wait()
hanging = Hangs(); loaders.threads.finish_at_exit(hanging)
from loaders.store import open_store
store = open_store(sys.argv[1]); writer = written(accel.connect(store, settings=LATER))
writer.finish = threading.Event().wait
        """,
    ),
    "`os._exit()`, `os.execv()`, `SIGTERM` without a handler, `SIGKILL`, a crash": (
        LOST,
        """
writer = written()
os._exit(0)
---
writer = written()
os.execv(sys.executable, [sys.executable, '-c', ''])
---
writer = written()
os.kill(os.getpid(), signal.SIGTERM)
signal.pause()
---
writer = written()
os.kill(os.getpid(), signal.SIGKILL)
        """,
    ),
}
"""How a program ends -> what becomes of its events, and programs that end so, with a line between them."""


def stored(url: str) -> int:
    with accel.connect(url) as streams, streams.reader("shop", "orders") as reader:
        return sum(1 for _ in reader)


@pytest.mark.parametrize("end", ENDS)
def test_events_that_were_not_flushed_become_what_the_page_says(end: str, tmp_path: Path) -> None:
    outcome, programs = ENDS[end]
    for number, text in enumerate(programs.rstrip(" ").split("---\n")):
        url = f"file://{tmp_path / str(number)}"
        with accel.connect(url, create=True) as streams:
            streams.create_scope("shop")
            streams.create_stream("shop", "orders", segments=1)
        program = tmp_path / f"program{number}.py"
        program.write_text(PRELUDE + text)
        ended = subprocess.run(  # noqa: S603 - programs of this test
            [sys.executable, str(program), url], check=False, capture_output=True, text=True, timeout=SECONDS
        )
        said = ended.stderr.count("events of shop/orders are not known to be stored")
        found = SAID if said == 1 else LOST if said == 0 else f"said {said} times"
        if stored(url):
            found = STORED if stored(url) == EVENTS and not said else f"stored {stored(url)}, said {said} times"
        assert found == outcome, f"{text}\n{ended.stderr}"


def test_the_page_says_what_becomes_of_them() -> None:
    rows = {row[0]: row[1] for row in table_rows(page_named("streams")) if len(row) == 2}
    assert {end: rows.get(end) for end in ENDS} == {end: outcome for end, (outcome, _) in ENDS.items()}
