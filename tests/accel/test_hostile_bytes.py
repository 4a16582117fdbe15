"""What is said of stored bytes that cannot be read; `tests/fuzzing` searches every decoder of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from accel.history import records as codecs
from loaders.errors import CorruptObject
from loaders.tables import FormRegistry
from tests.accel.history.records.golden import FOLDER


def layout_by(name: str) -> bytes:
    """The record of a layout that is sharded by something that this release does not know."""
    record = Path(FOLDER, "history-layout-1.bin").read_bytes()
    head = 3 + len("history-layout")
    return record[:head] + msgspec.msgpack.encode({**msgspec.msgpack.decode(record[head:]), "shard_by": name})


def test_a_record_that_cannot_be_shown_is_corrupt() -> None:
    known = FormRegistry()
    known.register(*codecs.ALL_FORMS)
    with pytest.raises(CorruptObject, match=r"'key' .*form 'history-layout' that can be shown.*NO_SUCH_WAY"):
        known.decode_any(layout_by("NO_SUCH_WAY"), "key")


def test_what_an_error_shows_of_the_bytes_is_bounded() -> None:
    with pytest.raises(CorruptObject, match=r"XXX\.\.\. \(1000\d+ characters\)") as caught:
        codecs.HISTORY_LAYOUT.decode(layout_by("X" * 1_000_000), "key")
    assert len(str(caught.value)) < 3000
