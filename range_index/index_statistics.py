"""What an index holds and how it fared, as one value to print, compare and export."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """A stream range index at one moment. Counters count since the index was made.

    Args:
        nodes: nodes of which anything is known.
        objects: objects whose arrays are in memory.
        entries: entries in these arrays.
        streams: streams' views in memory, expired ones that nobody asked for since included.
        view_entries: entries in these views.
        array_bytes: of the objects' arrays and their bookkeeping.
        view_bytes: of the views and their bookkeeping.
        log_bytes: of the nodes and their memory of changes.
        hits: questions that a live view answered.
        misses: questions that found no live view.
        fills: views that were filled from the arrays.
        catch_ups: views that took in changes of their node.
        expired: views that reached the end of their time to live.
        evicted_views: views that left for want of room.
        evicted_objects: objects whose arrays left for want of room.
    """

    nodes: int
    objects: int
    entries: int
    streams: int
    view_entries: int
    array_bytes: int
    view_bytes: int
    log_bytes: int
    hits: int
    misses: int
    fills: int
    catch_ups: int
    expired: int
    evicted_views: int
    evicted_objects: int

    @property
    def nbytes(self) -> int:
        """All bytes together."""
        return self.array_bytes + self.view_bytes + self.log_bytes
