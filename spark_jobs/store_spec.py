"""How a task reaches the bucket: a value that travels, and becomes a store where the task runs.

A client of S3 holds connections and locks and cannot be sent to another process; its settings can. Credentials are not
among them: each process finds them where it runs, as every AWS tool does (environment, profile, role of the machine).
Making a client takes longer than many a task, so the tasks of one process, which Spark keeps, share one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from loaders.store import CountingStore, ObjectStore, S3Settings, open_store

STORES_KEPT_MAX = 8
"""Clients that one process keeps."""


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """A bucket, and how to reach it.

    Args:
        url: as `open_store` takes it: s3://bucket/prefix.
        settings: of the client.
    """

    url: str
    settings: S3Settings = field(default_factory=S3Settings)

    def open(self) -> CountingStore:
        """The store, in this process; counts its requests anew.

        Raises:
            ValueError: not a URL of a store, or of one in the memory of this process, which no task can see.
        """
        if self.url.lower().startswith("memory:"):
            raise ValueError(f"expected a store that every process can reach, found {self.url}")
        return CountingStore(_shared_store(self))


@lru_cache(maxsize=STORES_KEPT_MAX)
def _shared_store(spec: StoreSpec) -> ObjectStore:
    return open_store(spec.url, spec.settings)
