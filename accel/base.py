"""What the accelerators for threads and for asyncio have in common: all that needs no waiting."""

from __future__ import annotations

from collections.abc import Iterable

from accel.answer import Answer
from accel.engine import Engine, RangesGiven, ranges_of
from accel.errors import StillPending
from accel.image import MetadataImage, ObjectRef
from accel.image_source import ImageSource
from accel.metrics import AcceleratorStats
from accel.settings import Settings
from accel.system import SYSTEM, Components
from loaders.store import ObjectStore


class AcceleratorBase:
    """Common to both accelerators.

    Args:
        source: where images come from.
        store: where the objects lie; `open_store` gives one for a URL.
        settings: bounds and choices.
        system: clock, sleep and chance; the real ones by default.
    """

    def __init__(
        self,
        source: ImageSource,
        store: ObjectStore,
        *,
        settings: Settings | None = None,
        system: Components = SYSTEM,
    ) -> None:
        self._engine = Engine(source, store, settings=settings or Settings(), system=system)

    def object_committed(self, node_id: int, ref: ObjectRef, ranges: RangesGiven) -> None:
        """Tell of an object that this process wrote itself, so that nobody here needs to open it.

        Args:
            node_id: the node that it was committed for.
            ref: the object.
            ranges: what it holds: {stream id: (start, end)}, (stream id, start, end) rows, or `ObjectRanges`; each
                range without a hole inside.

        Raises:
            ValueError: ranges that repeat a stream or are inverted.
        """
        self._engine.commit(node_id, ref, ranges_of(ranges))

    def replace_image(self, image: MetadataImage) -> bool:
        """Install an image if it is newer than the present one, and drop what it no longer lists.

        Returns:
            Whether it was installed. An older or equal one changes nothing: there is no way back.

        Raises:
            ImageRefused: an image of another namespace, or of another kind of version.
        """
        return self._engine.replace_image(image)

    def add_hints(self, node_id: int, stream_id: int, entries: Iterable[tuple[int, int, int]]) -> None:
        """Tell of (start, end, object id) entries of a stream, each true of the object that it names.

        An entry of an object that an image does not list is passed over by its lookups.
        """
        rows = list(entries)
        starts, ends, object_ids = ([row[column] for row in rows] for column in range(3))
        self._engine.knowledge.add_entries(node_id, stream_id, starts, ends, object_ids)

    def stats(self) -> AcceleratorStats:
        """Counts, and memory against its bounds. Complexity: O(1) but for sums over caches."""
        return self._engine.stats()


def still_pending(answer: Answer) -> StillPending:
    """The error of a fetch that waited long enough for a newer image."""
    request = answer.request
    return StillPending(
        f"stream {request.stream_id}: expected offsets [{request.start}, {request.end}) in image version "
        f"{answer.image_version}, found none from {answer.resume_offset} on"
    )
