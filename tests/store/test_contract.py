"""Every store keeps the contract: in memory, behind each decorator, and on S3 servers through both clients."""

from __future__ import annotations

from tests.store.contract import StoreContract


class TestEveryStore(StoreContract):
    """All of `conftest.store`: a store of each kind, empty at the start of each test."""
