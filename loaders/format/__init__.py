"""The bytes of objects, without any I/O: bytes in, records out, and back.

    tail of an object --footer--> position of the index --block_index--> rows --find--> blocks --records--> batches

Reading starts with ``open_tail``, writing with ``ObjectEncoder``. Every length read from bytes is checked before it is
used; bytes that contradict the format or themselves raise ``CorruptObject``. The byte tables are at the top of each
module, and together in docs/reference/objects.md.
"""

from loaders.format.block_index import (
    OPEN_END,
    ROW_SIZE_BYTES,
    BlockIndex,
    BlockRow,
    FoundRows,
    decode_block_index,
    find,
)
from loaders.format.composite import CompositeObject, LinkedObject, decode_composite, encode_composite
from loaders.format.object_encoder import ObjectEncoder
from loaders.format.records import (
    BatchColumns,
    RecordBatch,
    decode_block_bytes,
    decode_block_columns,
    encode_block,
)
from loaders.format.tail import (
    FOOTER_SIZE_BYTES,
    Footer,
    MissingBytes,
    check_tail,
    decode_footer,
    guess_tail_size_bytes,
    open_tail,
    tail_checksum,
)

__all__ = [
    "FOOTER_SIZE_BYTES",
    "OPEN_END",
    "ROW_SIZE_BYTES",
    "BatchColumns",
    "BlockIndex",
    "BlockRow",
    "CompositeObject",
    "Footer",
    "FoundRows",
    "LinkedObject",
    "MissingBytes",
    "ObjectEncoder",
    "RecordBatch",
    "check_tail",
    "decode_block_bytes",
    "decode_block_columns",
    "decode_block_index",
    "decode_composite",
    "decode_footer",
    "encode_block",
    "encode_composite",
    "find",
    "guess_tail_size_bytes",
    "open_tail",
    "tail_checksum",
]
