"""Memory for parts is used again, and never while somebody still looks at it."""

from __future__ import annotations

import pytest

from loaders.merge.transfer import PartBuffer, PartBuffers


def test_a_buffer_that_is_in_use_is_not_filled_again() -> None:
    buffer = PartBuffer()
    kept = buffer.fill([b"these are on their way"])
    with pytest.raises(BufferError):
        buffer.fill([b"others"])
    assert bytes(kept) == b"these are on their way"


def test_buffers_come_back_and_are_kept_up_to_a_bound() -> None:
    buffers = PartBuffers(size_bytes_max=10)
    first, second = buffers.take(), buffers.take()
    assert first is not second
    for buffer in (first, second):
        buffer.fill([b"12345678"])
        buffers.give_back(buffer)
    assert buffers.take() is first
    assert buffers.take() not in (first, second), "the second one was more than may be kept"
