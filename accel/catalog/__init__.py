"""The object catalog: the list of all objects, kept in versioned tables of the bucket itself.

`ObjectCatalog` makes, opens and reads a catalog; `NodeWriter` is a broker's write session. The rules of commits are
pure (`node_list`, `stream_shards`, `compact`); the modules that read and write apply the rules by compare-and-set.
"""

from __future__ import annotations

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.writer import NodeWriter, Uploaded
from accel.settings import CatalogSettings

__all__ = ["CatalogSettings", "NodeWriter", "ObjectCatalog", "Uploaded"]
