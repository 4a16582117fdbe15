"""Puts the bytes of one part together, and proves that they are those of the sources.

Copies that lie end to end in their source and in the part are cut out as one piece; pieces are slices, not copies, and
are put into the part's buffer in one go. Then the part is looked at as a reader would see it:

* at each row the headers of its blocks are checked (`loaders.format.merging_blocks`);
* a hash that goes over the pieces one by one, where they lie in what was read, must equal the hash of the whole part.

The hash is XXH3 (64 bits): on blocks of a kilobyte it costs 0.2 us a block, zlib's CRC-32 0.5 us.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64, xxh3_64_intdigest

from loaders.errors import FormatError
from loaders.format.merging_blocks import find_bad_block
from loaders.format.merging_rows import Copies
from loaders.merge_bands import Located
from loaders.merge_buffers import PartBuffer
from loaders.merge_reading import Source

CHECKSUM_MASK = 2**64 - 1


class Joined(NamedTuple):
    """The bytes of a part, and the hash of the blocks in it."""

    data: memoryview
    checksum: int


def join_copies(
    buffer: PartBuffer,
    sources: Sequence[Source],
    copies: Copies,
    located: Located,
    chunks: Sequence[memoryview],
    tail: bytes = b"",
) -> Joined:
    """Join the copies of one part, and check what comes out.

    Complexity: O(bytes), and one Python step a piece.

    Args:
        buffer: holds the part, until it is cleared.
        sources: all sources, for the error's sake.
        copies: those of the part.
        located: where their bytes are.
        chunks: what was read.
        tail: what stands behind them: index and footer, in the last part.

    Raises:
        CorruptObject: a block is not what the index of its source says.
        FormatError: the bytes that were joined are not those that were read.
    """
    pieces = cut_pieces(copies, located, chunks)
    data = buffer.fill([*pieces, tail])
    with data[: len(data) - len(tail)] as blocks:
        _check_blocks(sources, copies, blocks)
        return Joined(data, _checksum(pieces, blocks))


def cut_pieces(copies: Copies, located: Located, chunks: Sequence[memoryview]) -> list[memoryview]:
    """The bytes of these copies, in their order, as slices; copies that lie end to end are one."""
    ends = located.offsets + copies["size_bytes"]
    places = [located.chunks, located.offsets, ends]
    begins = (located.chunks[1:] != located.chunks[:-1]) | (located.offsets[1:] != ends[:-1])
    if not begins.all():
        firsts = np.flatnonzero(np.append(True, begins))
        places = [located.chunks[firsts], located.offsets[firsts], ends[np.append(firsts[1:], len(ends)) - 1]]
    columns = [column.tolist() for column in places]
    return [chunks[chunk][start:end] for chunk, start, end in zip(*columns, strict=True)]


def _check_blocks(sources: Sequence[Source], copies: Copies, data: memoryview) -> None:
    bad = find_bad_block(data, copies)
    if bad is not None:
        copy = copies[bad.copy]
        at = int(copy["position"]) + bad.at
        raise sources[int(copy["source"])].corrupt(expected=f"{bad.expected} at byte {at}", found=bad.found)


def _checksum(pieces: Sequence[memoryview], sent: memoryview) -> int:
    read = xxh3_64()
    for piece in pieces:
        read.update(piece)
    found = xxh3_64_intdigest(sent)
    if read.intdigest() != found:
        expected = f"a hash of {read.intdigest():#x} over what was read"
        raise FormatError(f"{expected}, found {found:#x} over what was to be sent")
    return found
