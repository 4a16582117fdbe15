"""S3's answers, as boto3 hands them over, turned into the values of the seam. Imports no client."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from loaders.store.base import DeleteFailure, Fetched, ListPage, ObjectInfo
from loaders.store.error_table import store_error
from loaders.store.ranges import check_size, parse_content_range

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import ErrorTypeDef, GetObjectOutputTypeDef, ListObjectsV2OutputTypeDef


def bare_etag(etag: str) -> str:
    """An ETag as it crosses the seam: without quotes.

    >>> bare_etag('"9e107d9d372bb6826bd81d3542a419d6"')
    '9e107d9d372bb6826bd81d3542a419d6'
    """
    return etag.strip('"')


def fetched(answer: GetObjectOutputTypeDef, key: str, size_bytes_max: int | None = None) -> Fetched:
    """Read the body of a GetObject, and what the answer says about the object.

    Args:
        answer: of the client.
        key: the object's key, for the error's sake.
        size_bytes_max: of a whole object; None = of any length.

    Raises:
        CorruptObject: the object is longer; its body is not read.
        OSError: fewer bytes came than the answer promised.
        ValueError: the answer says in no known way which bytes it holds.
    """
    # No body is longer than its header says; one that comes in chunks has no such header.
    length = answer.get("ContentLength", -1)
    with closing(answer["Body"]) as stream:
        check_size(key, length, size_bytes_max)
        body = stream.read() if length >= 0 or size_bytes_max is None else stream.read(size_bytes_max + 1)
    check_size(key, len(body), size_bytes_max)
    content_range = answer.get("ContentRange", "")
    if not content_range:
        return Fetched(body, bare_etag(answer["ETag"]), len(body))
    start, end, size = parse_content_range(content_range)
    if len(body) != end - start:
        raise ConnectionResetError(f"{end - start} bytes were promised, {len(body)} came")
    return Fetched(body, bare_etag(answer["ETag"]), size, start)


def listed(answer: ListObjectsV2OutputTypeDef) -> ListPage:
    """A page of ListObjectsV2."""
    found = [
        ObjectInfo(each["Key"], each["Size"], bare_etag(each["ETag"]), each["LastModified"].timestamp())
        for each in answer.get("Contents", ())
    ]
    return ListPage(found, more=answer["IsTruncated"])


def delete_failure(refused: ErrorTypeDef) -> DeleteFailure:
    """A key that DeleteObjects did not delete; this answer has a code but no status."""
    key, code = refused.get("Key", ""), refused.get("Code", "")
    detail = f"{code} {refused.get('Message', '')}".strip()
    return DeleteFailure(key, store_error("delete_many", key, detail, code=code))
