"""What the user points at: an object by id, by key, or as a local file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from accel.cli.opening import CountedReads, LocalFiles, Readable
from accel.cli.options import Place
from accel.cli.output import Output


@dataclass(frozen=True, slots=True)
class Target:
    """One object that was pointed at; ``object_id`` is None where its name does not tell it."""

    key: str
    source: Readable
    object_id: int | None = None
    is_file: bool = False


class Targets:
    """Finds out what names mean. The store is opened only if some name needs it.

    A name of digits is an id (a file of such a name is ./42), an existing file is that file, all else is a key.

    Threads: one at a time.
    """

    def __init__(self, place: Place, output: Output) -> None:
        self._place = place
        self._output = output
        self._files = CountedReads(LocalFiles())
        self._store: CountedReads | None = None

    @property
    def reads(self) -> tuple[int, int]:
        """Requests and bytes so far, files included."""
        sources = [self._files, *([self._store] if self._store else [])]
        return sum(each.requests for each in sources), sum(each.bytes_read for each in sources)

    @property
    def store(self) -> Readable:
        """The bucket.

        Raises:
            click.UsageError: none is named.
        """
        if self._store is None:
            self._store = CountedReads(self._place.store.open(self._output))
        return self._store

    def find(self, name: str) -> Target:
        """The object that a name means; nothing is sent.

        Raises:
            click.UsageError: it lies in a bucket, and none is named.
        """
        if name.isascii() and name.isdigit():
            return self.of_id(int(name))
        if Path(name).is_file():
            return Target(name, self._files, is_file=True)
        return Target(name, self.store, self._place.layout.parse_object_key(name))

    def of_id(self, object_id: int) -> Target:
        """The object of an id."""
        return Target(self._place.layout.object_key(object_id), self.store, object_id)
