"""A store's folder that vanishes, or is replaced by an older copy, while a writer and a reader run: nothing is lost."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from accel import connect
from accel.errors import CatalogWentBack, CommitRefused, StoreFull, WrongFolder
from accel.streams.acknowledgements import WriteFuture
from accel.streams.reader import StreamReader
from accel.streams.writer import StreamWriter
from loaders.store import FileStore, MemoryStore
from loaders.store.decorated import Answer, DecoratedStore, StoreCall
from tests.builders import batches
from tests.world import World

WAIT_SECONDS = 60.0
"""A bound on the wait for an event that is there."""

STREAM = 1001


class Acknowledged:
    """Events of one writer, with the acknowledged ones."""

    def __init__(self, writer: StreamWriter) -> None:
        self.writer = writer
        self.payloads: list[bytes] = []
        self._numbers = count()

    def write(self, events: int) -> None:
        """Write events, and flush once."""
        made = [b"%d" % next(self._numbers) for _ in range(events)]
        futures = [self.writer.write(payload, key="k") for payload in made]
        try:
            self.writer.flush()
        finally:
            self.payloads += [each for each, future in zip(made, futures, strict=True) if not _failed(future)]


def _failed(future: WriteFuture) -> bool:
    return not future.done() or future.exception() is not None


def swap(folder: Path, other: Path) -> None:
    """Put another folder in the place of a folder."""
    folder.rename(folder.parent / "old")
    other.rename(folder)


def read(reader: StreamReader, events: int) -> list[bytes]:
    """The next events."""
    found = (reader.next_event(timeout_seconds=WAIT_SECONDS) for _ in range(events))
    return [bytes(event.payload) for event in found if event is not None]


def test_a_volume_that_is_unmounted_for_a_while_loses_nothing_and_gets_nothing(tmp_path: Path) -> None:
    folder, away = tmp_path / "volume" / "store", tmp_path / "away"
    folder.parent.mkdir()
    with connect(f"file://{folder}", create=True) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders")
        with streams.writer("shop", "orders") as writer:
            events = Acknowledged(writer)
            events.write(1)
            folder.parent.rename(away)
            folder.parent.mkdir()  # what is below the mount
            for _ in range(2):
                with pytest.raises(WrongFolder, match=r"expected store .* found no file"):
                    events.write(1)
            assert list(folder.parent.iterdir()) == []
            assert events.payloads == [b"0"]
            folder.parent.rmdir()
            away.rename(folder.parent)
            events.write(1)
        assert read(streams.reader("shop", "orders"), 4) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("events_a_flush", [1, 500])
def test_after_an_older_copy_was_put_in_place_nothing_is_acknowledged_and_a_reader_says_so(
    tmp_path: Path, events_a_flush: int
) -> None:
    folder = tmp_path / "store"
    url = f"file://{folder}"
    with connect(url, create=True) as streams, connect(url) as others:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders")
        writer = streams.writer("shop", "orders")
        events = Acknowledged(writer)
        events.write(1)
        shutil.copytree(folder, tmp_path / "copy")
        events.write(2)
        reader = others.reader("shop", "orders", follow=True)
        assert read(reader, 3) == events.payloads
        swap(folder, tmp_path / "copy")
        for call in (partial(events.write, events_a_flush), partial(events.write, 1), writer.flush, writer.close):
            with pytest.raises(CatalogWentBack, match=r"expected version .* which was read before"):
                call()
        assert len(events.payloads) == 3
        with pytest.raises(CatalogWentBack):
            read(reader, 1)
        with pytest.raises(CatalogWentBack):
            streams.close()


class LostBetween(DecoratedStore):
    """The next commit fails, and before it is repeated the written objects are gone: a bucket put back meanwhile."""

    has_failed = False

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.operation == "put" and call.key.startswith("accel/tables/node-lists/") and not self.has_failed:
            self.has_failed = True
            written = [info.key for info in self.list("") if not info.key.startswith("accel/")]
            self.delete(max(written, key=lambda key: int(key.rpartition("/")[2])))
            raise StoreFull("put", call.key, "no room")
        return super()._around(call, send)


def test_an_object_that_is_gone_when_its_commit_is_repeated_is_sent_again() -> None:
    store = LostBetween(MemoryStore())
    store.has_failed = True
    with connect(store, create=True) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders")
        writer = streams.writer("shop", "orders")
        events = Acknowledged(writer)
        events.write(1)
        store.has_failed = False
        with pytest.raises(StoreFull):
            events.write(1)
        writer.flush()
        assert read(streams.reader("shop", "orders"), 2) == [b"0", b"1"]


class SwappedAfterPut(DecoratedStore):
    """A copy is put in the place of the folder after the next object was written."""

    def __init__(self, store: FileStore) -> None:
        super().__init__(store)
        self.act: Callable[[], object] = lambda: None

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        answer = super()._around(call, send)
        if call.operation == "put" and not call.key.startswith("accel/"):
            act, self.act = self.act, lambda: None
            act()
        return answer


@pytest.mark.parametrize("steps", ["one call", "written, then committed"])
def test_an_object_that_is_not_in_the_copy_is_not_committed_there(tmp_path: Path, steps: str) -> None:
    """The copy has the newest list, and not the object that was written for the next commit: no version shows it."""
    folder = tmp_path / "store"
    store = SwappedAfterPut(FileStore(folder, sleep=time.sleep))  # noqa: TID251 - a real folder
    world = World(store)
    with world.open() as catalog:
        writer = catalog.open_node(4)
        writer.open_streams([STREAM])
        writer.upload({STREAM: batches(STREAM, 0, 10)})
        shutil.copytree(folder, tmp_path / "copy")
        store.act = partial(swap, folder, tmp_path / "copy")
        whole = partial(writer.upload, {STREAM: batches(STREAM, 10, 20)})
        in_steps = partial(world.upload, writer, {STREAM: (10, 20)})
        with pytest.raises(CommitRefused, match=r"expected an object of .* found none"):
            whole() if steps == "one call" else in_steps()
    with world.open() as catalog:
        assert [ref.object_id for ref in catalog.refresh().node(4).refs] == [0]
