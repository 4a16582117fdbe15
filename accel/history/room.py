"""Whether a chunk of the history has room for a scale, asked before anything of the scale is written.

A chunk holds the changes of its epochs in columns of at most 1,048,576 rows. A scale that did not fit would stand still
between its steps for ever, so it is refused before it begins:

    | rows                    | of one chunk                                                                   |
    |-------------------------|--------------------------------------------------------------------------------|
    | an epoch's              | the segments that it seals, and those that it creates                          |
    | share of an epoch       | rows / 4 / epochs of a chunk: 262 of 1,000. Whoever takes no more has room     |
    | left for larger ones    | all but the shares of the epochs that are still to come                        |

So nobody needs to look at the chunk for a scale of the usual size. Duplicates take no rows.
"""

from __future__ import annotations

from typing import Final

from accel.errors import ScalePrecondition
from accel.history.history_chunk import HistoryChunk
from accel.history.scaling import ScaleRequest

CHUNK_ROWS_MAX: Final = 1 << 20
SHARED_PART: Final = 4


def needs_look(request: ScaleRequest, chunk_size: int) -> bool:
    """Whether a scale takes more than the share of one epoch, so that its chunk is to be looked at.

    Args:
        request: the scale.
        chunk_size: epochs of a chunk.
    """
    return _rows(request) > _share(chunk_size)


def refuse_crowded(request: ScaleRequest, epoch: int, chunk: HistoryChunk | None, chunk_size: int) -> None:
    """Do nothing if there is room for a scale.

    Args:
        request: the scale.
        epoch: that it leads to.
        chunk: the one that this epoch belongs to; None = it is the first in it.
        chunk_size: epochs of a chunk.

    Raises:
        ScalePrecondition: there is not.
    """
    taken = 0 if chunk is None else len(chunk.created) + len(chunk.sealed)
    room = room_left(taken, epoch, chunk_size)
    if _rows(request) > room:
        last = epoch - epoch % chunk_size + chunk_size - 1
        limit = f"a scale of at most {room} segments sealed and created before epoch {last + 1}"
        raise ScalePrecondition(f"expected {limit}, found {_rows(request)}; nothing was changed")


def room_left(taken: int, epoch: int, chunk_size: int) -> int:
    """How many rows an epoch may take in its chunk.

    Args:
        taken: rows that earlier epochs have in there.
        epoch: the one that is to come.
        chunk_size: epochs of a chunk.
    """
    to_come = chunk_size - 1 - epoch % chunk_size
    return max(CHUNK_ROWS_MAX - taken - to_come * _share(chunk_size), _share(chunk_size))


def _rows(request: ScaleRequest) -> int:
    return len(request.seal) + len(request.new_ranges)


def _share(chunk_size: int) -> int:
    return CHUNK_ROWS_MAX // SHARED_PART // chunk_size
