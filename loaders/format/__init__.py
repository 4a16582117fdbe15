"""The bytes of objects, without any I/O: bytes in, records out, and back.

    tail of an object --footer--> position of the index --index--> rows --find--> blocks --records--> batches

Reading starts with ``open_tail``, writing with ``ObjectEncoder``. Every length read from bytes is checked before it is
used; bytes that contradict the format or themselves raise ``CorruptObject``. The byte tables are at the top of each
module, and together in docs/reference/objects.md.
"""

from loaders.format.index import (
    FOOTER_SIZE_BYTES,
    OPEN_END,
    ROW_SIZE_BYTES,
    BlockIndex,
    BlockRow,
    CompositeObject,
    Footer,
    FoundRows,
    LinkedObject,
    MissingBytes,
    check_tail,
    decode_block_index,
    decode_composite,
    decode_footer,
    find,
    guess_tail_size_bytes,
    open_tail,
    tail_checksum,
)
from loaders.format.object_encoder import ObjectEncoder
from loaders.format.records import (
    BatchColumns,
    RecordBatch,
    decode_block_bytes,
    decode_block_columns,
    encode_block,
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
    "find",
    "guess_tail_size_bytes",
    "open_tail",
    "tail_checksum",
]
