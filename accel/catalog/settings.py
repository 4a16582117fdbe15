"""Choices of those who write to a catalog. What readers and writers must agree on stands in the format record."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """Bounds and choices of one process that uses a catalog.

    Args:
        parallel_requests: how many requests of one refresh or one start may be under way at once.
        ids_block: object ids that one write of the counter takes.
        ids_ahead: ids that a node's writer keeps prepared beyond those in use, topped up by the write of each commit,
            so that an upload needs no second write for its id; 0 = none.
        checkpoint_commits: a node's writer writes down where its streams end after so many commits. A new session
            opens at most about so many object indexes before it can write.
        stream_objects_in_list_max: objects of one stream that may wait in a node's list until they are moved to the
            buckets of streams.
        list_versions_kept: versions of a list that stay after commits which take objects out, for `undo`.
    """

    parallel_requests: int = 32
    ids_block: int = 1024
    ids_ahead: int = 4
    checkpoint_commits: int = 64
    stream_objects_in_list_max: int = 64
    list_versions_kept: int = 5

    def __post_init__(self) -> None:
        for each in fields(self):
            least = 0 if each.name == "ids_ahead" else 1
            if getattr(self, each.name) < least:
                raise ValueError(f"expected {each.name} of at least {least}, found {getattr(self, each.name)}")
