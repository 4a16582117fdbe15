"""The object catalog: which objects there are, kept in versioned tables of the bucket itself.

`ObjectCatalog` makes, opens and reads one; `NodeWriter` is a broker's session of writing. The rules of commits are pure
(`list_rules`, `stream_rules`, `compact`); what reads and writes applies them by compare-and-set.
"""

from __future__ import annotations

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.node_writer import NodeWriter
from accel.catalog.settings import CatalogSettings
from accel.catalog.uploading import Uploaded

__all__ = ["CatalogSettings", "NodeWriter", "ObjectCatalog", "Uploaded"]
