"""The object catalog: which objects there are, kept in versioned tables of the bucket itself.

`ObjectCatalog` makes, opens and reads one; `NodeWriter` is a broker's session of writing. The rules of commits are pure
(`node_list`, `stream_shards`, `compact`); what reads and writes applies them by compare-and-set.
"""

from __future__ import annotations

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.parts import CatalogSettings
from accel.catalog.writer import NodeWriter, Uploaded

__all__ = ["CatalogSettings", "NodeWriter", "ObjectCatalog", "Uploaded"]
