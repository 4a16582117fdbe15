"""The lookup as a plain scan: every object's contents at hand, no index, no filters, no cleverness.

Written from the rules of the lookup alone, over plain data; it shares no code with the search that it judges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Contents = dict[int, dict[int, tuple[int, int]]]
"""Object id -> stream id -> (start, end)."""


@dataclass(frozen=True)
class Scanned:
    """What the plain scan answers: status ok or invalid, and (kind, object id, start, end) of each object."""

    status: str
    objects: list[tuple[str, int, int, int]]


def plain_scan(metadata: dict[str, Any], contents: Contents, query: tuple[int, int, int, int]) -> Scanned:
    """Answer (stream, start, end, limit) from an image as plain data and from what each set object holds."""
    stream_id, start, end, limit = query
    streams = {stream["stream_id"]: stream for stream in metadata["streams"]}
    stream = streams.get(stream_id)
    if stream is None or limit < 0 or (end != -1 and start > end) or start < stream["start_offset"]:
        return Scanned("invalid", [])
    return Scanned("ok", _Scan(metadata, contents, stream, start, end, limit).run())


class _Scan:
    def __init__(
        self, metadata: dict[str, Any], contents: Contents, stream: dict[str, Any], start: int, end: int, limit: int
    ) -> None:
        self.nodes = {node["node_id"]: node["stream_set_objects"] for node in metadata["nodes"]}
        self.contents = contents
        self.stream = stream
        self.next, self.end, self.limit = start, end, limit
        self.picked: list[tuple[str, int, int, int]] = []

    def done(self) -> bool:
        return len(self.picked) >= self.limit or (self.end != -1 and self.next >= self.end)

    def pick(self, kind: str, object_id: int, start: int, end: int) -> None:
        self.picked.append((kind, object_id, start, end))
        self.next = end

    def stream_objects(self) -> bool:
        """One pass over the stream's own objects; whether the limit or the end is reached."""
        for each in sorted(self.stream["stream_objects"], key=lambda one: one["start"]):
            if each["end"] <= self.next:
                continue
            if each["start"] == self.next or (not self.picked and each["start"] < self.next):
                self.pick("stream", each["object_id"], each["start"], each["end"])
                if self.done():
                    return True
            else:
                return False
        return False

    def owner(self) -> dict[str, Any] | None:
        ranges = sorted(self.stream["ranges"], key=lambda one: one["range_index"])
        for number, each in enumerate(ranges):
            last = number == len(ranges) - 1
            if each["start"] <= self.next and (last or self.next < each["end"]):
                found: dict[str, Any] = each
                return found
        return None

    def run(self) -> list[tuple[str, int, int, int]]:
        previous = None
        while True:
            if self.stream_objects():
                return self.picked
            owned = self.owner()
            if owned is None or owned is previous:
                return self.picked
            previous = owned
            if self.walk(owned["node_id"]):
                return self.picked

    def walk(self, node_id: int) -> bool:
        """Rounds over one node's list and the stream objects; whether the limit or the end is reached."""
        listed = sorted(self.nodes.get(node_id, []), key=lambda one: one["order_id"])
        position = 0
        while position < len(listed):
            count = len(self.picked)
            while position < len(listed):
                object_id = listed[position]["object_id"]
                held = self.contents[object_id].get(self.stream["stream_id"])
                if held is None or held[1] <= self.next:
                    position += 1
                elif held[0] == self.next or (not self.picked and held[0] < self.next):
                    self.pick("stream_set", object_id, *held)
                    position += 1
                    if self.done():
                        return True
                else:
                    break
            if self.stream_objects():
                return True
            if len(self.picked) == count:
                return False
        return False
