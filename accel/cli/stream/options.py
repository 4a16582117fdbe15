"""Options that commands on scopes, streams and transactions share.

    @stream_group.command()
    @stream_options             # stream: StreamChoice, with store, scope and name; output: Output
    def command(stream, output): ...

    @stream_group.command()
    @stream_reader_options      # reader: ReaderChoice besides, for commands that read its events
    def command(stream, reader, output): ...

The store of streams is loaded when a command opens it, so that other commands start without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from accel.cli.options import Command, ReaderChoice, StoreChoice, option, reader_options, store_options
from accel.cli.stream.notation import parse_moment, parse_number, read_cut
from accel.errors import CatalogMissing
from accel.history.rules.values import some_ids

if TYPE_CHECKING:
    from accel.history.rules.values import Cut, Integers
    from accel.history.store import Stream, StreamStore
    from accel.history.store.segment_host import StreamName
    from accel.rendering import Output
    from loaders.store import ObjectStore

Callback: TypeAlias = Callable[[click.Context, click.Parameter, Any], Any]


def read_by(parse: Callable[[str], Any]) -> Callback:
    """A callback that parses an option's text, or each of several; a ValueError is the message for the user."""

    def read(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        try:
            if isinstance(value, tuple):
                return tuple(map(parse, value))
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from error

    return read


def parse_name(text: str) -> str:
    """Any text except an empty one.

    Raises:
        ValueError: it is empty.
    """
    if not text:
        raise ValueError("expected a name, found nothing")
    return text


@dataclass(frozen=True, slots=True)
class ScopeChoice:
    """The scope that the user named.

    Args:
        store: the store of the scope.
        name: the scope's name; None if the command does not need one.
    """

    store: StoreChoice
    name: str | None = None

    def open(self, *, is_held: bool = False, may_be_here: bool = False) -> StreamStore:
        """The streams of the store.

        Args:
            is_held: whether the user holds the segments; otherwise operations that need a host are refused.
            may_be_here: whether the command itself compares the ends of segments with data in the bucket's catalog;
                otherwise operations on streams whose data is there are refused.
        """
        from accel.history.store import GivenSizes, StreamStore  # noqa: PLC0415 - only some commands need it

        store = self.store.open()
        refuse = None if may_be_here else partial(_refuse_here, store)
        return StreamStore.open(store, host=GivenSizes(refuse=refuse) if is_held else None)

    @property
    def scope(self) -> str:
        """The scope's name.

        Raises:
            click.UsageError: none was given.
        """
        if not self.name:
            raise click.UsageError("Missing option '--scope' (or ACCEL_SCOPE).")
        return self.name


@dataclass(frozen=True, slots=True)
class StreamChoice:
    """The stream that the user named.

    Args:
        scope: its scope.
        name: its name.
    """

    scope: ScopeChoice
    name: str

    def __str__(self) -> str:
        return f"{self.scope.scope}/{self.name}"

    def open(self, *, is_held: bool = False, may_be_here: bool = False) -> Stream:
        """The stream; arguments as for `ScopeChoice.open`.

        Raises:
            NotInHistory: it does not exist, or was not completely created.
        """
        return self.scope.open(is_held=is_held, may_be_here=may_be_here).stream(self.scope.scope, self.name)

    def refuse_beyond(self, stream: Stream, output: Output, *cuts: Cut, is_read_here: bool = False) -> None:
        """Refuse cuts after the end of a segment; note which ends are not known here.

        Ends are those of sealed segments, and those of data in the bucket's catalog. A cut that is not valid is left
        to the command, which refuses it.

        Args:
            stream: the stream, opened.
            output: for the note.
            cuts: the cuts.
            is_read_here: whether the stream is read from the bucket's catalog: then a segment without data there is
                empty. Otherwise its data may be elsewhere, unless a writer has opened a segment of the stream there.

        Raises:
            PositionBeyondEnd: a segment ends before its offset.
        """
        ask = partial(_catalog_ends, self.scope.store, stream, is_read_here=is_read_here)
        unknown = {each for cut in cuts if stream.cuts.is_valid(cut) for each in stream.cuts.refuse_beyond(cut, ask)}
        if unknown:
            names = some_ids(sorted(unknown))
            output.note(f"not checked: the end of {names} is unknown, as its data is not in this bucket's catalog")

    def ends_here(self, stream: Stream, ids: Sequence[int]) -> dict[int, int]:
        """The ends of those of these segments that take writes, by the bucket's catalog; none if it has no data."""
        active = stream.active_segments().ids
        wanted = active[[each in ids for each in active.tolist()]]
        return _catalog_ends(self.scope.store, stream, wanted, is_read_here=False) if len(wanted) else {}


def _refuse_here(store: ObjectStore, stream: StreamName, what: str) -> None:
    from accel.streams.segment_directory import refuse_data_here  # noqa: PLC0415 - only some commands need it

    refuse_data_here(store, stream, what)


def _catalog_ends(store: StoreChoice, stream: Stream, ids: Integers, *, is_read_here: bool) -> dict[int, int]:
    """The ends of segments that are not sealed, by the bucket's catalog; none if it has no data of the stream."""
    from accel.catalog import ObjectCatalog  # noqa: PLC0415 - only some commands need it
    from accel.streams.segment_directory import known_ends, segment_tails  # noqa: PLC0415 - likewise

    try:
        with ObjectCatalog.open(store.open()) as catalog:
            return (segment_tails if is_read_here else known_ends)(catalog, stream, ids)
    except CatalogMissing:
        return {}


def scope_options(command: Command) -> Command:
    """`--scope` and all of `store_options` -> ``scope``."""

    @option("--scope", callback=read_by(parse_name), help="The scope.")
    @store_options
    @functools.wraps(command)
    def wrapped(*args: Any, scope: str | None, store: StoreChoice, **others: Any) -> Any:
        return command(*args, scope=ScopeChoice(store, scope), **others)

    return wrapped  # type: ignore[return-value]  # the same command with other arguments


def stream_options(command: Command) -> Command:
    """`--scope`, `--stream` and all of `store_options` -> ``stream``."""

    @scope_options
    @option("--stream", required=True, callback=read_by(parse_name), help="The stream, within its scope.")
    @functools.wraps(command)
    def wrapped(*args: Any, scope: ScopeChoice, stream: str, **others: Any) -> Any:
        return command(*args, stream=StreamChoice(scope, stream), **others)

    return wrapped  # type: ignore[return-value]  # likewise


def stream_reader_options(command: Command) -> Command:
    """`--scope`, `--stream` and all of `reader_options` -> ``stream`` and ``reader``."""

    @option("--scope", callback=read_by(parse_name), help="The scope.")
    @option("--stream", required=True, callback=read_by(parse_name), help="The stream, within its scope.")
    @reader_options
    @functools.wraps(command)
    def wrapped(*args: Any, scope: str | None, stream: str, reader: ReaderChoice, **others: Any) -> Any:
        choice = StreamChoice(ScopeChoice(reader.store, scope), stream)
        return command(*args, stream=choice, reader=reader, **others)

    return wrapped  # type: ignore[return-value]  # likewise


def moment_option(name: str, help_text: str, **attributes: Any) -> Callable[[Command], Command]:
    """An option that takes a moment -> `Moment`, None if it is not given."""
    return click.option(name, metavar="MOMENT", callback=read_by(parse_moment), help=help_text, **attributes)


def cut_options(
    file: str = "--cut", offset: str = "--at", into: str = "cut", what: str = "The cut", *, required: bool = True
) -> Callable[[Command], Command]:
    """A cut as a file, or as offsets -> ``into``: offsets by segment id, empty if it is not required and not given."""

    def decorate(command: Command) -> Command:
        @click.option(file, f"{into}_file", metavar="FILE", callback=read_by(read_cut), help=f"{what}, a JSON file.")
        @click.option(
            offset,
            f"{into}_offsets",
            metavar="N@E=OFFSET",
            multiple=True,
            callback=read_by(parse_number),
            help=f"{what}, segment by segment; -1 for a future one; may be repeated.",
        )
        @functools.wraps(command)
        def wrapped(*args: Any, **others: Any) -> Any:
            from_file, from_offsets = others.pop(f"{into}_file"), others.pop(f"{into}_offsets")
            if from_file is not None and from_offsets:
                raise click.UsageError(f"Expected '{file}' or '{offset}', found both.")
            cut = _once(offset, from_offsets) if from_file is None else from_file
            if required and not cut:
                raise click.UsageError(f"Missing option '{file}' or '{offset}'.")
            return command(*args, **{into: cut}, **others)

        return wrapped  # type: ignore[return-value]  # likewise

    return decorate


def holder_option(command: Command) -> Command:
    """`--data-elsewhere` -> ``is_held``: whether the user holds the segments."""
    text = "You hold the segments' data, outside this bucket's catalog, and change them as the command requires."
    return option("--data-elsewhere", "is_held", is_flag=True, help=text)(command)


def sizes_option(command: Command) -> Command:
    """`--size` -> ``sizes``, by segment id."""

    @click.option(
        "--size",
        "sizes",
        metavar="N@E=SIZE",
        multiple=True,
        callback=read_by(parse_number),
        help="The size of a sealed segment, in the stream's offset unit; may be repeated.",
    )
    @functools.wraps(command)
    def wrapped(*args: Any, sizes: tuple[tuple[int, int], ...], **others: Any) -> Any:
        given = _once("--size", sizes)
        if min(given.values(), default=0) < 0:
            raise click.UsageError("Expected sizes of at least 0 with '--size'.")
        return command(*args, sizes=given, **others)

    return wrapped  # type: ignore[return-value]  # likewise


def _once(name: str, numbers: tuple[tuple[int, int], ...]) -> dict[int, int]:
    by_segment = dict(numbers)
    if len(by_segment) < len(numbers):
        raise click.UsageError(f"Expected each segment once with '{name}'.")
    return by_segment
