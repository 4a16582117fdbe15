"""Every store keeps the contract: in memory, behind each decorator, and on S3 servers through both clients."""

from __future__ import annotations

from io import BytesIO
from typing import Any, cast

import pytest
from botocore.response import StreamingBody

from loaders.errors import CorruptObject
from loaders.store.s3 import fetched
from tests.loaders.store.contract import StoreContract


class TestEveryStore(StoreContract):
    """All of `conftest.store`: a store of each kind, empty at the start of each test."""


@pytest.mark.parametrize(("size", "most", "got"), [(10, 10, 10), (11, 10, None), (600, 10, None), (600, None, 600)])
def test_of_an_answer_that_tells_no_length_no_more_is_read_than_the_limit(
    size: int, most: int | None, got: int | None
) -> None:
    body = BytesIO(b"x" * size)
    answer: Any = {"Body": StreamingBody(body, cast("Any", None)), "ETag": '"e"'}
    if got is not None:
        assert len(fetched(answer, "k", most).body) == got
        return
    with pytest.raises(CorruptObject, match=r"'k' .*at most 10 bytes, found 11"):
        fetched(answer, "k", most)
    assert body.closed
