"""Tables keep their contract on every store: in memory, and on S3 servers through both clients."""

from __future__ import annotations

from tests.loaders.tables.contract import TableContract


class TestTables(TableContract):
    """On all of `conftest.world`: a store of each kind, empty at the start of each test."""
