"""A store without room: each call says so at once, nothing is lost, and all goes on once there is room."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import accel
from accel import Connection
from accel.errors import StoreFull
from accel.streams.writer import StreamWriter
from tests.small_disks import SmallDisk


def _flush(_: Connection, writer: StreamWriter) -> None:
    writer.flush()


def _close_writer(_: Connection, writer: StreamWriter) -> None:
    writer.close()


def _create(streams: Connection, _: StreamWriter) -> None:
    streams.create_scope("other")


def _scale(streams: Connection, _: StreamWriter) -> None:
    streams.create_stream("shop", "others")


@pytest.mark.parametrize("call", [_flush, _close_writer, _create, _scale])
def test_each_call_names_it_and_what_was_written_is_durable_once_there_is_room(
    call: Callable[[Connection, StreamWriter], object],
) -> None:
    disk = SmallDisk()
    with accel.connect(disk, create=True) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders")
        writer = streams.writer("shop", "orders")
        writer.write(b"0", key="k")
        writer.flush()
        free_bytes, disk.free_bytes = disk.free_bytes, 0
        future = writer.write(b"1", key="k")
        with pytest.raises(StoreFull, match=r"No space left on device: '/small'"):
            call(streams, writer)
        assert not future.done()
        disk.free_bytes += free_bytes
        assert future.result(60.0) is not None
        with streams.reader("shop", "orders") as reader:
            assert [event.payload for event in reader] == [b"0", b"1"]
