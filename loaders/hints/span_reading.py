"""Reads a planned span, and tells what a failure means for the hint.

That a named object is gone means that the root is stale: a newer generation replaced it. That it has another length
means that it is not the one the root names. Both are the hint's trouble, not the reader's: it goes on without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loaders.errors import AccessDenied, KeyMissing, RangeInvalid
from loaders.hints.errors import HintProblem, HintTrouble

if TYPE_CHECKING:
    from loaders.errors import AccelError
    from loaders.hints.byte_span import ByteSpan
    from loaders.store.base import Fetched, ObjectStore


def read_span(store: ObjectStore, span: ByteSpan) -> bytes:
    """The bytes of a span. One request.

    Raises:
        HintProblem: stale or mixed.
        StoreError: the store could not say.
    """
    try:
        return checked_body(span, store.get_range(span.key, span.start, span.end))
    except (KeyMissing, AccessDenied, RangeInvalid) as error:
        raise span_problem(span, error) from error


def checked_body(span: ByteSpan, fetched: Fetched) -> bytes:
    """The bytes that a request for the span brought, if they are of the object that the root names.

    Raises:
        HintProblem: mixed.
    """
    if fetched.object_size_bytes != span.object_size_bytes or len(fetched.body) != span.size_bytes:
        expected = f"{span.size_bytes} of {span.object_size_bytes} bytes"
        found = f"{len(fetched.body)} of {fetched.object_size_bytes}"
        raise HintProblem(HintTrouble.MIXED, span.key, f"expected {expected}, found {found}")
    return fetched.body


def span_problem(span: ByteSpan, error: AccelError) -> HintProblem:
    """What it means that the object could not be read: it is gone or another one."""
    kind = HintTrouble.MIXED if isinstance(error, RangeInvalid) else HintTrouble.STALE
    return HintProblem(kind, span.key, str(error))
