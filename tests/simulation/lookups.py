"""Readers that look things up as brokers do: an accelerator over images that are kept as long as they may be.

What an answer must hold was acknowledged before the image that it is true of was asked for; it must be there without a
gap, and be what the objects really hold. The accelerator's own threads are replaced by the actor's: see `simulate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from accel import Answer, ReadAccelerator, Settings
from accel.catalog import ObjectCatalog
from accel.errors import ImageTooOld, InconsistentAnswer, InvalidRequest, ObjectLost
from accel.image import ImageVersion, MetadataImage
from accel.image_source import ConfirmedImage, PolledImages
from loaders.errors import StoreError
from tests.simulation.actors import TRIES_MAX, Reader
from tests.simulation.invariants import refuse_missing
from tests.simulation.scheduler import Violation
from tests.simulation.world import STREAMS, Machine

LOOKUPS = 6
LIMIT = 4

WARMS = 0.4
"""So many accelerators load filter packs first."""

FOLLOWS = 0.7
"""Of the questions for a newer image, so many are of a reader that follows by listings."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What an image must answer for, and how long.

    Args:
        image: the image.
        committed: stream -> [start, end) of each upload that was acknowledged before it was asked for.
        good_until_seconds: until when it may be served from.
    """

    image: MetadataImage
    committed: dict[int, list[tuple[int, int]]]
    good_until_seconds: float


class Looker(Reader):
    """Looks up random offsets, and reads the objects that it is told."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._promises: list[Promise] = []

    def live(self, catalog: ObjectCatalog) -> None:
        """A process: an accelerator with its images, some of them as old as they may be."""
        random, max_age_seconds = self.machine.random, catalog.format.max_image_age_seconds
        self._promises = []
        images = PolledImages(
            lambda: self._fetch(catalog),
            timer=self.machine.system.timer,
            sleep=self.machine.system.sleep,
            poll_seconds=random.uniform(0.1, 0.9) * max_age_seconds,
            max_age_seconds=max_age_seconds,
        )
        settings = Settings(parallel_loads=1, hashed_ids_max=64, hedge_percent=0)  # which would wait by a real clock
        with ReadAccelerator(images, self.machine.store, settings=settings, system=self.machine.system) as accelerator:
            if random.random() < WARMS:
                self.machine.count("nodes warmed", accelerator.warm().nodes)
            for _ in range(random.randrange(1, LOOKUPS)):
                self._look_up(accelerator)
                self.machine.scheduler.sleep(random.uniform(0, 0.5) * max_age_seconds)

    def _fetch(self, catalog: ObjectCatalog) -> ConfirmedImage:
        """What a refresh gives, or following by listings, which may be behind."""
        asked_seconds, asked_timer = self.machine.scheduler.seconds, self.machine.system.timer()
        if self.machine.random.random() < FOLLOWS:
            found = catalog.follow()
        else:
            found = ConfirmedImage(catalog.refresh(), asked_timer)
        confirmed_seconds = asked_seconds + found.confirmed_seconds - asked_timer
        good_until_seconds = confirmed_seconds + catalog.format.max_image_age_seconds
        committed = {each: self.machine.oracle.committed_by(each, confirmed_seconds) for each in STREAMS}
        self._promises.append(Promise(found.image, committed, good_until_seconds))
        return found

    def _look_up(self, accelerator: ReadAccelerator) -> None:
        promise, stream_id = self._promises[-1], self.machine.random.choice(STREAMS)
        stream = promise.image.streams.get(stream_id)
        ends = [end for _, end in promise.committed[stream_id]]
        if stream is None or not ends or stream.start_offset >= max(ends):
            return
        at = self.machine.random.randrange(stream.start_offset, max(ends))
        answer = self._asked(accelerator, stream_id, at)
        if answer is not None:
            self._check(answer, self._promise(answer.image_version))

    def _asked(self, accelerator: ReadAccelerator, stream_id: int, at: int) -> Answer | None:
        for _ in range(TRIES_MAX):
            try:
                return accelerator.get_objects(stream_id, at, limit=LIMIT)
            except InconsistentAnswer as error:
                raise Violation(f"stream {stream_id} from {at}: {error}") from error
            except InvalidRequest as error:
                stream = self._promises[-1].image.streams[stream_id]
                if at >= stream.start_offset:
                    raise Violation(f"stream {stream_id} from {at}: {error}") from error
                self.machine.count("trimmed meanwhile")
                return None
            except ObjectLost as error:
                is_hurt = self.machine.world.is_hurt()
                if self.machine.scheduler.seconds <= self._promises[-1].good_until_seconds and not is_hurt:
                    raise Violation(f"stream {stream_id} from {at}: {error}") from error
                self.machine.count("lookups that took too long")
                return None
            except ImageTooOld:
                self.machine.count("images too old")
                return None
            except StoreError:
                continue
        return None

    def _promise(self, version: ImageVersion) -> Promise:
        return next(each for each in reversed(self._promises) if each.image.version == version)

    def _check(self, answer: Answer, promise: Promise) -> None:
        stream_id, at = answer.request.stream_id, answer.request.start
        held = [(each.start, each.end, each.ref.object_id) for each in answer.objects]
        for before, after in pairwise(held):
            if before[1] != after[0]:
                raise Violation(f"stream {stream_id} from {at}: a gap or an overlap between {before} and {after}")
        until = held[-1][1] if len(held) == LIMIT else max(end for _, end in promise.committed[stream_id])
        committed = [(start, min(end, until)) for start, end in promise.committed[stream_id] if start < until]
        refuse_missing(stream_id, at, held, committed)
        for found in answer.objects:
            if (stream_id, found.start, found.end) not in self._read(found.ref, promise.good_until_seconds):
                raise Violation(f"object {found.ref.object_id} does not hold what was found in it: {found}")
        self.machine.count("lookups")
