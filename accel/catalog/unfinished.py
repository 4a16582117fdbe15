"""Multipart uploads that their processes left unfinished: a store keeps their parts, and bills them, for good.

No listing of uploads shows their metadata, so that it does not prove whose they are. Uploads of a catalog's objects are
recorded below `accel/uploads/` before their first part (`loaders.object_writer.start_upload`), and only recorded ones
are aborted. A record that is as old as an orphan (`orphan_seconds`) belongs to a process that has died, or cannot
commit its object any more. Aborting an upload that was completed changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from accel.catalog.parts import MILLISECONDS, CatalogParts
from loaders.errors import StoreError
from loaders.layout import UPLOADS_PREFIX, parse_upload_key


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """A recorded upload.

    Args:
        object_id: of the object.
        upload_id: the store's name of the upload.
        record: the key of the record.
        since_ms: when it was begun, milliseconds since 1970, by the store's clock.
    """

    object_id: int
    upload_id: str
    record: str
    since_ms: int


def find_unfinished(parts: CatalogParts) -> list[UnfinishedUpload]:
    """The recorded uploads that are old enough to be aborted. One request for 1,000 records.

    Raises:
        StoreError: they could not be listed.
    """
    begun_before_ms = parts.now_ms() - int(parts.format.orphan_seconds * MILLISECONDS)
    found = []
    for info in parts.store.list(UPLOADS_PREFIX):
        since_ms, parsed = int(info.modified_seconds * MILLISECONDS), parse_upload_key(info.key)
        if parsed is not None and since_ms < begun_before_ms:
            found.append(UnfinishedUpload(*parsed, info.key, since_ms))
    return found


def abort_unfinished(parts: CatalogParts, uploads: list[UnfinishedUpload]) -> list[tuple[UnfinishedUpload, str]]:
    """Abort uploads and delete their records; return those that failed, with the errors. Two requests each."""
    failed = []
    for upload in uploads:
        try:
            parts.store.abort_multipart(parts.layout.object_key(upload.object_id), upload.upload_id)
            parts.store.delete(upload.record)
        except StoreError as error:
            failed.append((upload, str(error)))
    return failed
