"""Errors over HTTP: `application/problem+json` (RFC 9457), with the types of `accel.errors`.

    {"type": "urn:accel:UnknownStream", "title": "...", "status": 404, "detail": "...", "advice": "...",
     "retryable": false}

Clients branch on `type`, the class of the error; `detail` is for people. The status is that of the first class in the
table that the error is an instance of. A detail contains no user, password or token.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.json import Encoder

from accel import errors
from accel.errors import AccelError
from loaders.errors import redacted, shortened

PROBLEM_TYPE: Final = "application/problem+json"
URN: Final = "urn:accel:"

STATUSES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (errors.UnknownStream, 404),
    (errors.InvalidRequest, 400),
    (errors.InvalidArgument, 400),
    (errors.StreamDeleted, 410),
    (errors.NotInHistory, 404),
    (errors.PositionTruncated, 410),
    (errors.HistoryError, 409),
    (errors.DataNotFound, 404),
    (errors.NameRefused, 400),
    (errors.StillPending, 504),
    (errors.LookupTimedOut, 504),
    (errors.ImageTooOld, 503),
    (errors.Closed, 503),
    (errors.NoThread, 503),
    (errors.CatalogMissing, 503),
    (errors.StoreUnavailable, 503),
    (errors.CredentialsExpired, 503),
    (errors.CatalogError, 502),
    (errors.StoreError, 502),
    (errors.TableError, 502),
    (errors.FormatError, 502),
    (errors.ObjectLost, 502),
    (errors.OffsetsGivenUp, 410),
    (errors.InconsistentAnswer, 502),
    (TimeoutError, 504),
)
"""By class; other errors are 500. The first match is used: a class precedes its base."""

RETRY_SECONDS: Final = 1
"""The header Retry-After of errors that a retry may cure."""


class Problem(Struct, frozen=True, omit_defaults=True):
    """The body of an answer that reports an error.

    Args:
        type: urn:accel: and the class of the error.
        title: the meaning of this class.
        status: of the answer.
        detail: what happened.
        advice: what the user can do.
        retryable: whether the same request may succeed later.
    """

    type: str
    title: str
    status: int
    detail: str
    advice: str | UnsetType = UNSET
    retryable: bool = False


_encode = Encoder().encode


class Refused(Exception):
    """A refused request whose problem is not an error class of the library.

    Args:
        kind: the end of its type, such as "TooManyRequests".
        status: of the answer.
        title: the meaning of this kind.
        detail: what was expected, and what was found.
        retryable: whether the same request may succeed later.
    """

    def __init__(self, kind: str, status: int, title: str, detail: str, *, retryable: bool = False) -> None:
        super().__init__(detail)
        self.problem = Problem(URN + kind, title, status, detail, retryable=retryable)


def problem_of(error: BaseException) -> Problem:
    """The problem of an error; for a foreign error it contains no details."""
    if isinstance(error, Refused):
        return error.problem
    if isinstance(error, TimeoutError):
        return Problem(
            URN + "TimedOut", "The request took too long.", 504, "the time for a request is over", UNSET, True
        )
    if not isinstance(error, AccelError):
        return Problem(URN + "InternalError", "The sidecar failed.", 500, "the log of the sidecar contains the reason")
    kind = type(error)
    title = (kind.__doc__ or "").strip().partition("\n")[0]
    detail, advice = shortened(redacted(str(error))), error.advice or UNSET
    return Problem(URN + kind.__name__, title, status_of(error), detail, advice, error.retryable)


def status_of(error: BaseException) -> int:
    """The status of an answer that reports an error."""
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


def encoded(problem: Problem) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Body and headers of an answer."""
    headers = [(b"content-type", PROBLEM_TYPE.encode())]
    if problem.retryable and problem.status in {429, 503}:
        headers.append((b"retry-after", b"%d" % RETRY_SECONDS))
    return _encode(problem), headers
