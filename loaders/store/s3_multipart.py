"""An object of S3 that is sent in parts. The client is handed in: this module imports none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from loaders.store.base import PartReceipt
from loaders.store.ranges import check_part_number, check_range, range_header

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from types_boto3_s3 import S3Client

    from loaders.store.base import Body


class Errors(Protocol):
    """Turns the client's exceptions into ours, for one operation on one key."""

    def __call__(self, operation: str, key: str, /) -> AbstractContextManager[None]:
        """A context that does it for what runs inside."""
        ...


class S3Multipart:
    """One upload; see `MultipartUpload`. Safe for many threads, as the client is.

    Args:
        client: a client that repeats what failed; sending a part again replaces it.
        bucket: where the object will be.
        key: its key.
        upload_id: what S3 calls this upload.
        errors: turns the client's exceptions into ours.
    """

    def __init__(self, client: S3Client, bucket: str, key: str, upload_id: str, errors: Errors) -> None:
        self._client = client
        self._bucket = bucket
        self._key = key
        self._upload_id = upload_id
        self._errors = errors

    def upload_part(self, number: int, body: Body) -> PartReceipt:
        """See `MultipartUpload.upload_part`."""
        check_part_number(number)
        content = body if isinstance(body, bytes) else bytes(body)
        with self._errors("upload_part", self._key):
            answer = self._client.upload_part(
                Bucket=self._bucket, Key=self._key, UploadId=self._upload_id, PartNumber=number, Body=content
            )
        return PartReceipt(number, answer["ETag"].strip('"'))

    def copy_part(self, number: int, source_key: str, start: int, end: int) -> PartReceipt:
        """See `MultipartUpload.copy_part`.

        Ceph 16 decodes the source's key once too often: there a key with "%" in it names another object, or none.
        """
        check_part_number(number)
        check_range(start, end)
        with self._errors("copy_part", source_key):
            answer = self._client.upload_part_copy(
                Bucket=self._bucket,
                Key=self._key,
                UploadId=self._upload_id,
                PartNumber=number,
                CopySource={"Bucket": self._bucket, "Key": source_key},
                CopySourceRange=range_header(start, end),
            )
        return PartReceipt(number, answer["CopyPartResult"]["ETag"].strip('"'))

    def complete(self, receipts: Iterable[PartReceipt]) -> str:
        """See `MultipartUpload.complete`."""
        ordered = sorted(receipts, key=lambda receipt: receipt.number)
        with self._errors("complete", self._key):
            answer = self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=self._key,
                UploadId=self._upload_id,
                MultipartUpload={"Parts": [{"PartNumber": each.number, "ETag": f'"{each.etag}"'} for each in ordered]},
            )
            # Ceph leaves the ETag of a completed upload empty; the object itself has it.
            etag = answer.get("ETag") or self._client.head_object(Bucket=self._bucket, Key=self._key)["ETag"]
        return etag.strip('"')

    def abort(self) -> None:
        """See `MultipartUpload.abort`."""
        with self._errors("abort", self._key):
            try:
                self._client.abort_multipart_upload(Bucket=self._bucket, Key=self._key, UploadId=self._upload_id)
            except self._client.exceptions.NoSuchUpload:
                return
