"""One table says what every refusal is called."""

from __future__ import annotations

import pytest

from loaders.errors import (
    AccessDenied,
    BucketMissing,
    KeyMissing,
    PreconditionFailed,
    RangeInvalid,
    RequestRefused,
    StoreError,
    StoreFull,
    StoreThrottled,
    StoreUnavailable,
    WriteConflict,
)
from loaders.store.error_table import BY_CODE, BY_STATUS, store_error, store_error_of


@pytest.mark.parametrize(
    ("code", "status", "plain", "conditional"),
    [
        ("NoSuchKey", 404, KeyMissing, PreconditionFailed),
        ("", 404, KeyMissing, PreconditionFailed),
        ("NoSuchBucket", 404, BucketMissing, BucketMissing),
        ("NoSuchUpload", 404, RequestRefused, RequestRefused),
        ("AccessDenied", 403, AccessDenied, AccessDenied),
        ("Whatever", 403, AccessDenied, AccessDenied),
        ("PreconditionFailed", 412, PreconditionFailed, PreconditionFailed),
        ("ConditionalRequestConflict", 409, WriteConflict, WriteConflict),
        ("", 409, WriteConflict, WriteConflict),
        ("BucketNotEmpty", 409, RequestRefused, RequestRefused),
        ("InvalidRange", 416, RangeInvalid, RangeInvalid),
        ("SlowDown", 503, StoreThrottled, StoreThrottled),
        ("SlowDown", 0, StoreThrottled, StoreThrottled),
        ("", 503, StoreThrottled, StoreThrottled),
        ("", 429, StoreThrottled, StoreThrottled),
        ("RequestTimeout", 400, StoreUnavailable, StoreUnavailable),
        ("InternalError", 500, StoreUnavailable, WriteConflict),
        ("UnknownError", 500, StoreUnavailable, WriteConflict),
        ("", 502, StoreUnavailable, StoreUnavailable),
        ("XMinioStorageFull", 507, StoreFull, StoreFull),
        ("InsufficientStorage", 0, StoreFull, StoreFull),
        ("QuotaExceeded", 403, StoreFull, StoreFull),
        ("", 507, StoreFull, StoreFull),
        ("NotImplemented", 501, RequestRefused, RequestRefused),
        ("MalformedXML", 400, RequestRefused, RequestRefused),
        ("PermanentRedirect", 301, RequestRefused, RequestRefused),
        ("", 418, RequestRefused, RequestRefused),
    ],
)
def test_the_code_decides_and_then_the_status(
    code: str, status: int, plain: type[StoreError], conditional: type[StoreError]
) -> None:
    for is_conditional, kind in ((False, plain), (True, conditional)):
        error = store_error("put", "a/key", "its words", code=code, status=status, conditional=is_conditional)
        assert type(error) is kind
        assert str(error) == "put 'a/key': its words"


def test_no_entry_is_the_base_itself() -> None:
    assert all(kind is not StoreError for kind in [*BY_CODE.values(), *BY_STATUS.values()])


@pytest.mark.parametrize(
    ("exception", "kind"),
    [
        (TimeoutError("slow"), StoreUnavailable),
        (ConnectionResetError("gone"), StoreUnavailable),
        (FileNotFoundError("gone"), KeyMissing),
        (ValueError("odd"), RequestRefused),
    ],
)
def test_an_exception_is_known_by_its_nearest_base(exception: Exception, kind: type[StoreError]) -> None:
    error = store_error_of("get", "k", exception)
    assert type(error) is kind
    assert type(exception).__name__ in error.detail
