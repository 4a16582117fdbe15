"""A store with a budget of bytes, as a folder on a small disk: a write needs its room before the old file is freed."""

from __future__ import annotations

from collections.abc import Callable

from loaders.errors import StoreFull
from loaders.store import ALWAYS, Body, Condition, MemoryStore

RESERVE_BYTES = 1 << 14


class SmallDisk(MemoryStore):
    """A store in memory with a bound; `FolderStore`, too. Threads: as `MemoryStore`, in tests.

    Args:
        clock: of the objects' times.

    Attributes:
        free_bytes: the room that is left.
        refused: the keys that found no room.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        super().__init__(clock=clock)
        self.free_bytes = 1 << 30
        self.has_reserve = True
        self.refused: list[str] = []

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        if len(body) > self.free_bytes:
            self.refused.append(key)
            raise StoreFull("put", key, "[Errno 28] No space left on device: '/small'")
        before = self._size_bytes(key)
        etag = super().put(key, body, condition=condition, mark=mark)
        self.free_bytes += before - len(body)
        return etag

    def delete(self, key: str) -> None:
        self.free_bytes += self._size_bytes(key)
        super().delete(key)

    def give_up_reserve(self) -> bool:
        had, self.has_reserve = self.has_reserve, False
        self.free_bytes += RESERVE_BYTES if had else 0
        return had

    def notices(self) -> list[str]:
        return []

    def _size_bytes(self, key: str) -> int:
        return sum(info.size_bytes for info in self.list_page(key, limit=1).objects if info.key == key)
