"""The structure of the source in figures: `python -m tests.structure [--files]`.

Three tables. Files, lines and imports of everything outside the tests. Rooms, floors and arrows of a folder: a room is
a file or a folder in it, an arrow is an import of one room by another, a floor is the length of the longest chain of
arrows below a room. And for seven operations the number of files of the project in which a function was called;
`--files` names them.

Source: docs/decisions/0019-the-house.md, which has the figures before and after the tree was put in order.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

from accel import (
    FormatRecord,
    MetadataImage,
    ObjectCatalog,
    ObjectSegments,
    ReadAccelerator,
    StaticImages,
    StreamConfiguration,
    StreamStore,
    StreamWriter,
)
from accel.testing import MemorySegments
from loaders.format import RecordBatch
from loaders.layout import ObjectLayout
from loaders.object_writer import ObjectWriter
from loaders.store import MemoryStore
from loaders.threads import DaemonThreads
from tests.counting import (
    ROOT,
    SOURCE_FOLDERS,
    code_lines,
    floors_of,
    import_graph,
    import_lines,
    module_of,
    parsed,
    source_files,
)

DRAWN_FOLDERS = ("accel", "accel/catalog", "accel/history/store", "accel/lookup", "accel/streams", "loaders")
SMALL_LINES = 60
OBJECTS = 400
STREAM_ID = 420000


def size_figures(graph: dict[str, set[str]]) -> dict[str, int]:
    files = source_files()
    faces = {module_of(path) for path in files if path.name == "__init__.py"}
    lines = {path: len(path.read_text().splitlines()) for path in files}
    importers = {module: sum(module in imported for imported in graph.values()) for module in graph}
    small = [path for path, count in lines.items() if count < SMALL_LINES and path.name != "__init__.py"]
    return {
        "files": len(files),
        "lines": sum(lines.values()),
        "lines of code": sum(len(code_lines(path)) for path in files),
        "lines of imports": sum(len(import_lines(parsed(path))) for path in files),
        f"modules under {SMALL_LINES} lines": len(small),
        "modules with one importer": sum(count == 1 for module, count in importers.items() if module not in faces),
    }


def rooms_of(folder: str, graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Each file and folder directly in a folder, with those of its neighbours that it imports."""
    inside = folder.replace("/", ".") + "."
    rooms: dict[str, set[str]] = {}
    for module, imported in graph.items():
        if module.startswith(inside):
            room = module.removeprefix(inside).split(".")[0]
            neighbours = {name.removeprefix(inside).split(".")[0] for name in imported if name.startswith(inside)}
            rooms.setdefault(room, set()).update(neighbours - {room})
    return rooms


class FilesPassed:
    """Collects the project's files in which a function is called, on any thread started since `watched`."""

    def __init__(self) -> None:
        self._prefixes = tuple(f"{ROOT / folder}{os.sep}" for folder in SOURCE_FOLDERS)
        self._passed: set[str] | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Threads that are started within the block are looked at; also those that work for later calls."""
        threading.setprofile(self._look)
        try:
            with patch("loaders.threads.start_thread", DaemonThreads()):  # idle threads began before
                yield
        finally:
            threading.setprofile(None)

    @contextmanager
    def collected(self) -> Iterator[set[str]]:
        """What is passed while the block runs."""
        passed: set[str] = set()
        self._passed = passed
        sys.setprofile(self._look)
        try:
            yield passed
        finally:
            sys.setprofile(None)
            self._passed = None

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        passed, code = self._passed, frame.f_code
        if event != "call" or passed is None or code.co_name == "<module>":
            return
        if code.co_filename.startswith(self._prefixes):
            passed.add(code.co_filename)


FILES_PASSED = FilesPassed()


def counted(operation: Callable[[], object]) -> list[str]:
    with FILES_PASSED.collected() as passed:
        operation()
    return sorted(str(Path(name).relative_to(ROOT)) for name in passed)


def pushed_image() -> MetadataImage:
    """The image of the 400 objects, as a broker pushes it in."""
    owned = {"range_index": 0, "start": 0, "end": OBJECTS * 100, "node_id": 4}
    listed = [{"object_id": object_id, "order_id": object_id} for object_id in range(OBJECTS)]
    streams = [{"stream_id": STREAM_ID, "start_offset": 0, "ranges": [owned]}]
    return MetadataImage.from_dict(
        {"namespace": "flows", "streams": streams, "nodes": [{"node_id": 4, "stream_set_objects": listed}]}
    )


def lookup_flows() -> Iterator[tuple[str, list[str]]]:
    """Lookups and a read over a catalog of 400 objects that one node wrote; commits of an upload beside them."""
    store = MemoryStore()
    ObjectCatalog.init(store, FormatRecord(namespace="flows"))
    with ObjectCatalog.open(store) as catalog:
        node = catalog.open_node(4)
        node.open_streams([STREAM_ID])
        layout = ObjectLayout(namespace="flows")

        def commit(number: int) -> Callable[[], None]:
            [object_id] = node.prepare()
            with ObjectWriter(store, layout, object_id) as writer:
                writer.write(STREAM_ID, [RecordBatch(STREAM_ID, 1, number * 100, 100, b"some records")])
            return lambda: node.commit_upload(writer.ref, writer.ranges)

        for number in range(OBJECTS):
            commit(number)()
        commit_upload = commit(OBJECTS)
        with ReadAccelerator(StaticImages(pushed_image()), store) as accelerator:
            accelerator.get_objects(STREAM_ID, 0, 100)
            cold = counted(lambda: accelerator.get_objects(STREAM_ID, 15_050, 15_250))
            yield "warm get_objects", counted(lambda: accelerator.get_objects(STREAM_ID, 15_050, 15_250))
            yield "cold get_objects", cold
            yield "read of data", counted(lambda: list(accelerator.read(STREAM_ID, 15_050, 15_250)))
        yield "commit_upload", counted(commit_upload)
        node.close()


def history_flows() -> Iterator[tuple[str, list[str]]]:
    """Calls of a stream whose segments a node of the catalog holds, and one event written to it."""
    store = MemoryStore()
    ObjectCatalog.init(store, FormatRecord(namespace="flows"))
    with ObjectCatalog.open(store) as catalog, ObjectSegments(catalog, store, node_id=4) as host:
        streams = StreamStore.open(store, host=host)
        streams.create_scope("shop")
        orders = streams.create_stream("shop", "orders", StreamConfiguration(min_segments=1), segments=2)
        yield "current_epoch", counted(streams.stream("shop", "orders").current_epoch)
        yield "scale", scale_flow()
        with StreamWriter(orders, host) as writer:
            writer.write(b"tea", key="carl")
            writer.flush()

            def write() -> None:
                writer.write(b"salt", key="carl")
                writer.flush()

            yield "write and flush", counted(write)


def scale_flow() -> list[str]:
    """The files of a scale whose segments are held in memory: those of the history alone."""
    streams = StreamStore.open(MemoryStore(), host=MemorySegments())
    streams.create_scope("shop")
    orders = streams.create_stream("shop", "orders", StreamConfiguration(min_segments=1), segments=2)
    [first, *_] = orders.active_segments()
    return counted(lambda: orders.scale([first.id], [(0.0, 0.25), (0.25, 0.5)]))


def report(*, with_files: bool) -> Iterator[str]:
    graph = import_graph()
    for name, figure in size_figures(graph).items():
        yield f"{name:28} {figure:7,}"
    yield f"\n{'folder':28} {'rooms':>7} {'floors':>7} {'arrows':>7}"
    for folder in DRAWN_FOLDERS:
        rooms = rooms_of(folder, graph)
        yield f"{folder:28} {len(rooms):7} {floors_of(rooms):7} {sum(map(len, rooms.values())):7}"
    yield f"\n{'operation':28} {'files':>7}"
    with FILES_PASSED.watched():
        flows = [*lookup_flows(), *history_flows()]
    for name, files in flows:
        yield f"{name:28} {len(files):7}"
        yield from (f"    {file}" for file in files if with_files)


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in report(with_files="--files" in sys.argv))
