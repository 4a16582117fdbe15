"""How much memory a merge may take, and how it reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

ROW_SIZE_BYTES_MAX = 64 << 20
"""A row of an index with more bytes than this is not merged: rows are moved whole, and memory is bounded.
A writer closes a block at half a mebibyte, so only a huge single record makes such a row."""


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """Settings of a merge. Threads: immutable.

    At most `band_size_bytes` of sources and `sending_size_bytes` of parts on their way are in memory at once, and 240
    bytes a row of all sources. The defaults stay below 256 MiB, the interpreter included, up to about 100,000 rows: a
    merge of 110 MiB has 165 MiB allocated and 190 MiB resident, one of 600 MiB 105 and 185. The difference is what
    glibc keeps for each thread that reads; with `MALLOC_MMAP_THRESHOLD_=1048576` the latter is 130 MiB.

    Args:
        band_size_bytes: bytes of sources in memory; a group of at most so many takes one request a source, a larger one
            is read in bands of about half as much. 112 MiB.
        part_size_bytes: size of the parts of a large output, at least; S3 refuses parts below 5 MiB. 16 MiB.
        sending_size_bytes: bytes of parts that are being sent; 32 MiB.
        parallel_requests: reads, or parts that are being sent, at once; 4.
        server_side: let the store copy the data where it can; see `loaders.merge_sections`.

    Raises:
        ValueError: a number below 1.
    """

    band_size_bytes: int = 112 << 20
    part_size_bytes: int = 16 << 20
    sending_size_bytes: int = 32 << 20
    parallel_requests: int = 4
    server_side: bool = False

    def __post_init__(self) -> None:
        numbers = (self.band_size_bytes, self.part_size_bytes, self.sending_size_bytes, self.parallel_requests)
        if min(numbers) < 1:
            raise ValueError(f"expected settings of at least 1, found {self}")


DEFAULT_SETTINGS = MergeSettings()
