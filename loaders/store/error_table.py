"""The error classes for the errors of stores: one table for all clients.

S3 names an error by a code (`NoSuchKey`) and an HTTP status (404); clients raise exceptions for errors before an answer
arrives. This table is searched by the code first, then by the status, then by the name of the exception's class (so
that this module imports no client). Servers agree on codes and statuses, not on messages, so messages are ignored.

For a conditional write some answers have another meaning:

    | answer           | plain request    | conditional write  | because                                               |
    |------------------|------------------|--------------------|-------------------------------------------------------|
    | 404 NoSuchKey    | KeyMissing       | PreconditionFailed | If-Match on a missing key: S3 answers 404, others 412 |
    | 409              | WriteConflict    | WriteConflict      | another conditional write was under way               |
    | 500              | StoreUnavailable | WriteConflict      | Ceph's answer to the loser of a race                  |
    | no answer at all | StoreUnavailable | StoreUnavailable   | it may have been written: see the cause of the error  |
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from loaders.errors import (
    AccessDenied,
    BucketMissing,
    CredentialsExpired,
    CredentialsMissing,
    EndpointUnreachable,
    KeyMissing,
    PreconditionFailed,
    RangeInvalid,
    RequestRefused,
    StoreError,
    StoreFull,
    StoreThrottled,
    StoreUnavailable,
    WriteConflict,
    redacted,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    Table = Mapping[str, type[StoreError]]

BY_CODE: Table = MappingProxyType(
    {
        "NoSuchKey": KeyMissing,
        "NoSuchBucket": BucketMissing,
        "NoSuchUpload": RequestRefused,
        "AccessDenied": AccessDenied,
        "InvalidAccessKeyId": CredentialsExpired,
        "SignatureDoesNotMatch": AccessDenied,
        "ExpiredToken": CredentialsExpired,
        "InvalidToken": CredentialsExpired,
        "InvalidTokenId": CredentialsExpired,  # MinIO
        "TokenRefreshRequired": CredentialsExpired,
        "InvalidObjectState": RequestRefused,  # 403: the object is in an archive
        "PreconditionFailed": PreconditionFailed,
        "ConditionalRequestConflict": WriteConflict,
        "OperationAborted": WriteConflict,
        "BucketAlreadyExists": RequestRefused,
        "BucketAlreadyOwnedByYou": RequestRefused,
        "BucketNotEmpty": RequestRefused,
        "InvalidRange": RangeInvalid,
        "RequestTimeout": StoreUnavailable,  # 400: the body came too slowly
        "RequestTimeTooSkewed": RequestRefused,  # 403, but the cause is a wrong clock
        "SlowDown": StoreThrottled,
        "Throttling": StoreThrottled,
        "ThrottlingException": StoreThrottled,
        "RequestLimitExceeded": StoreThrottled,
        "SlowDownRead": StoreThrottled,  # MinIO
        "SlowDownWrite": StoreThrottled,
        "TooManyRequests": StoreThrottled,
        "ServerBusy": StoreThrottled,  # Azure
        "ServiceUnavailable": StoreThrottled,
        "NotImplemented": RequestRefused,
        "InsufficientStorage": StoreFull,
        "XMinioStorageFull": StoreFull,
        "XMinioAdminBucketQuotaExceeded": StoreFull,
        "QuotaExceeded": StoreFull,  # Ceph, 403
        # Azure's own names
        "AuthenticationFailed": CredentialsExpired,
        "BlobNotFound": KeyMissing,
        "ContainerNotFound": BucketMissing,
        "ContainerBeingDeleted": BucketMissing,
        "BlobAlreadyExists": PreconditionFailed,  # 409, but the outcome is known
        "ConditionNotMet": PreconditionFailed,
        "LeaseIdMissing": RequestRefused,  # 412, but not of a condition of the request
        "BlobArchived": RequestRefused,  # 409: the object is in an archive
    }
)

BY_STATUS: Mapping[int, type[StoreError]] = MappingProxyType(
    {
        401: CredentialsExpired,
        403: AccessDenied,
        404: KeyMissing,
        408: StoreUnavailable,
        409: WriteConflict,
        412: PreconditionFailed,
        416: RangeInvalid,
        429: StoreThrottled,
        501: RequestRefused,
        503: StoreThrottled,
        507: StoreFull,
    }
)

BY_EXCEPTION: Table = MappingProxyType(
    {
        # botocore: no answer, or only a part of one
        "HTTPClientError": StoreUnavailable,
        "ConnectionError": StoreUnavailable,
        "EndpointConnectionError": EndpointUnreachable,
        "ConnectTimeoutError": EndpointUnreachable,
        "IncompleteReadError": StoreUnavailable,
        "FlexibleChecksumError": StoreUnavailable,
        "OSError": StoreUnavailable,
        # botocore: no credentials
        "NoCredentialsError": CredentialsMissing,
        "PartialCredentialsError": CredentialsMissing,
        "CredentialRetrievalError": CredentialsMissing,
        "MetadataRetrievalError": CredentialsMissing,
        "NoAuthTokenError": CredentialsMissing,
        "TokenRetrievalError": CredentialsMissing,
        "SSOError": CredentialsMissing,
        "LoginError": CredentialsMissing,
        # botocore: all others concern a setting or an argument
        "BotoCoreError": RequestRefused,
        # obstore, where its errors have no code and status
        "FileNotFoundError": KeyMissing,
        "AlreadyExistsError": PreconditionFailed,
        "PreconditionError": PreconditionFailed,
        "PermissionDeniedError": AccessDenied,
        "UnauthenticatedError": CredentialsExpired,
        "InvalidPathError": RequestRefused,
        "NotSupportedError": RequestRefused,
        "UnknownConfigurationKeyError": RequestRefused,
        "BaseError": StoreUnavailable,
    }
)


def store_error(
    operation: str, key: str, detail: str, *, code: str = "", status: int = 0, conditional: bool = False
) -> StoreError:
    """The error for an answer with this code and status.

    Args:
        operation: the store's method, such as ``get_range``.
        key: the object's key, or the prefix of a listing.
        detail: the message of the store, for people.
        code: S3's name of the error; empty if the answer had none.
        status: the HTTP status; 0 if it is not known.
        conditional: whether it is the answer to a write with a condition.
    """
    return _kind(code, status, conditional=conditional)(operation, key, detail)


def is_throttled(code: str, status: int) -> bool:
    """Whether the store asks for fewer requests by an answer with this code and status."""
    return _kind(code, status, conditional=False) is StoreThrottled


def named_bucket(detail: str, code: str, bucket: str) -> str:
    """The message of the store; if the bucket is missing, with the bucket's name."""
    is_missing = BY_CODE.get(code) is BucketMissing
    return f"no bucket {bucket!r}: {detail}" if is_missing and bucket else detail


def store_error_of(operation: str, key: str, exception: BaseException) -> StoreError:
    """The error for a client's exception that carries neither code nor status."""
    redact(exception)
    return kind_of_exception(exception)(operation, key, f"{type(exception).__name__}: {exception}")


def redact(exception: BaseException) -> None:
    """Remove users and passwords of URLs from a client's exception, which logs print as a cause."""
    exception.args = tuple(redacted(argument) if isinstance(argument, str) else argument for argument in exception.args)


def kind_of_exception(exception: BaseException) -> type[StoreError]:
    """The error class for a client's exception, by its class or its nearest base; RequestRefused if unknown."""
    names = (base.__name__ for base in type(exception).__mro__)
    return next((BY_EXCEPTION[name] for name in names if name in BY_EXCEPTION), RequestRefused)


def _kind(code: str, status: int, *, conditional: bool) -> type[StoreError]:
    kind = BY_CODE.get(code) or BY_STATUS.get(status)
    if kind is None:
        kind = StoreUnavailable if status >= 500 else RequestRefused
    if conditional and kind is KeyMissing:
        return PreconditionFailed
    if conditional and status == 500:
        return WriteConflict
    return kind
