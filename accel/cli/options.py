"""Options that commands share: the store of the objects, the image, and the form of the output.

Each option can also come from the environment, as ACCEL_ and its name in capitals (ACCEL_STORE, ACCEL_IMAGE); a flag
has priority. Values that are not given come from AWS's own configuration chain.

The store is named in the same way everywhere: as an argument at any position, by `--store`, or by ACCEL_STORE; as a
URL, or as a bucket's name, with or without a prefix:

    accel get-objects s3://bucket/prefix ...      accel get-objects --store bucket/prefix ...

A decorator adds a group of options to a command, and passes it one value:

    @command("What it does.", "accel example s3://bucket")
    @reader_options         # reader: ReaderChoice, with image, store and policy; output: Output
    def command(reader, output): ...

With `--verbose` the opened store reports each request when its answer arrives.

If no requested object is at the store, an error says what is there instead, and in the rest of the bucket. A wrong
prefix or namespace looks like lost objects to a lookup, and like an empty bucket to an import. Two listings of one page
distinguish the cases, so that nothing is restored that was never lost.
"""

from __future__ import annotations

import base64
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from accel.catalog import ObjectCatalog
from accel.cli.groups import OUTPUT_FORMS, OUTPUT_META, help_shown
from accel.errors import AccelError, CatalogMissing, ImageRefused, MissingExtra, ObjectLost, WrongPlace
from accel.image import MetadataImage
from accel.image_source import ImageSource, StaticImages, read_image
from accel.lookup.accelerator import ReadAccelerator
from accel.rendering import LogForm, Output, Shown, TextLines, log_as, log_lines, printable
from accel.settings import DEFAULT_POLICY, Settings
from accel.system import SYSTEM
from accel.units import parse_size, parse_time, size_text, time_text
from loaders.errors import StoreError, redacted
from loaders.layout import ACCEL_PREFIX, ObjectLayout
from loaders.plan import POLICY_NAMES, policy_of
from loaders.store import CountingStore, ObjectStore, StoreCounts, StoreSettings, open_store
from loaders.store.base import LIST_PAGE_KEYS_MAX
from loaders.store.decorated import DecoratedStore, StoreCall, received_bytes
from loaders.store.open import SCHEMES, STORE_URLS

Answer = TypeVar("Answer")


class TracingStore(DecoratedStore):
    """Reports each request: operation, key, bytes, time. Threads: as of ``tell``.

    Args:
        store: the store that sends the requests.
        timer: seconds from any start.
        tell: called with one line a request.
    """

    def __init__(self, store: ObjectStore, timer: Callable[[], float], tell: Callable[[str], object]) -> None:
        super().__init__(store)
        self._timer = timer
        self._tell = tell

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        started = self._timer()
        try:
            answer = send()
        except StoreError as error:
            self._tell(f"{call.operation} {call.key}: {type(error).__name__} after {self._since(started)}")
            raise
        size = size_text(call.sent_bytes or received_bytes(answer))
        self._tell(f"{call.operation} {call.key}: {size} in {self._since(started)}")
        return answer

    def _since(self, started: float) -> str:
        return time_text(self._timer() - started)


Command = TypeVar("Command", bound=Callable[..., Any])

INTEGER_MAX: Final = 2**63 - 1

_URL = "url"
"""The argument that names the store."""

_SCHEMES = tuple(f"{scheme}://" for scheme in SCHEMES)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]+")


def store_url(text: str) -> str:
    """The URL of a store that a person names by its URL, or by the bucket's name.

    >>> store_url("bucket/prefix")
    's3://bucket/prefix'

    Raises:
        ValueError: neither.
    """
    if "://" in text:
        return text
    if not _BUCKET.fullmatch(text.partition("/")[0]):
        raise ValueError(f"expected bucket/prefix, {STORE_URLS}, found {redacted(text)!r}")
    return f"s3://{text}"


class StoreCommand(click.Command):
    """A command that accepts the store's URL among its arguments; without other arguments, also a bare bucket name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and find the word that names the store."""
        with help_shown(ctx):
            rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            _refuse_long_numbers(ctx)
        arguments = [param for param in self.params if isinstance(param, click.Argument)]
        if arguments and arguments[-1].name == _URL and not ctx.resilient_parsing:
            self._take_store(ctx, arguments[:-1], arguments[-1])
        return rest

    def _take_store(self, ctx: click.Context, others: Sequence[click.Argument], url: click.Argument) -> None:
        words = [word for argument in (*others, url) for word in _words(ctx.params[str(argument.name)])]
        named = [word for word in words if not others or word.lower().startswith(_SCHEMES)]
        left = [word for word in words if word not in named]
        for argument in others:
            ctx.params[str(argument.name)] = _share(ctx, argument, left)
        del ctx.params[_URL]
        if left:
            raise click.UsageError(f"Got unexpected extra argument ({left[0]})", ctx)
        if ctx.get_parameter_source("store") is ParameterSource.COMMANDLINE:
            named.append(ctx.params["store"])
        if len({*named}) > 1:
            raise click.UsageError(f"Expected one store, found {' and '.join(map(redacted, named))}.", ctx)
        if named:
            ctx.params["store"] = named[0]


def _refuse_long_numbers(ctx: click.Context) -> None:
    """Refuse numbers of more than 64 bits: ids, offsets, counts and sizes have no more."""
    for param in ctx.command.params:
        value = ctx.params.get(str(param.name))
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, int | float) and not -INTEGER_MAX - 1 <= each <= INTEGER_MAX:
                raise click.BadParameter(f"expected at most {INTEGER_MAX}, found {each}", ctx, param)


def _words(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _share(ctx: click.Context, argument: click.Argument, left: list[str]) -> Any:
    """Take an argument's words from the list of words that are left."""
    if argument.nargs < 0:
        share, left[:] = tuple(left), []
        return share
    if left:
        return left.pop(0)
    if argument.required:
        raise click.MissingParameter(ctx=ctx, param=argument)
    return None


class _Parsed(click.ParamType[Any]):
    """A parameter that one of Accel's functions parses; its ValueError is the message for the user.

    Args:
        name: of the type, for people.
        parse: reads it.
        known: values that a shell offers; none by default.
    """

    def __init__(self, name: str, parse: Callable[[str], Any], known: Sequence[str] = ()) -> None:
        self.name = name
        self._parse = parse
        self._known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's
        return [CompletionItem(each) for each in self._known if each.startswith(incomplete)]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _policy(text: str) -> str:
    policy_of(text)
    return text


def _layout(text: str) -> ObjectLayout:
    return ObjectLayout(namespace=text)


SIZE = _Parsed("size", parse_size)
"""A size such as 64MiB, in bytes."""

TIME = _Parsed("time", parse_time)
"""A time such as 2s, in seconds."""

POLICY = _Parsed("policy", _policy, POLICY_NAMES)
"""The name of a policy."""


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """The store that the user named.

    Args:
        url: in a form that `store_url` accepts; None if the command does not need one.
        settings: how to reach S3.
        output: reports each request, if it is verbose.
    """

    url: str | None
    settings: StoreSettings
    output: Output

    def open(self) -> CountingStore:
        """The store, which counts its requests, and reports them if the output is verbose. Sends no request.

        Raises:
            click.UsageError: no store is named, or not by a URL that can be one.
            MissingExtra: the client is not installed.
        """
        try:
            store = open_store(required_url(self.url), self.settings)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="'--store'") from error
        except ModuleNotFoundError as error:
            raise MissingExtra(str(error)) from error
        if not self.output.is_verbose:
            return CountingStore(store)
        counted = CountingStore(TracingStore(store, SYSTEM.timer, self.output.detail), SYSTEM.timer)
        click.get_current_context().call_on_close(lambda: self.output.detail(_causes_text(counted.snapshot())))
        return counted


def _causes_text(counts: StoreCounts) -> str:
    """The last line of a verbose command."""
    causes = [
        f"{cause} {count.requests} ({size_text(count.sent_bytes + count.received_bytes)})"
        for cause, count in counts.by_cause.items()
    ]
    total = counts.total
    lost = f"{total.repeated} sent again in {time_text(total.lost_seconds)}, {total.throttled} throttled"
    return f"requests by cause: {', '.join(causes) or 'none'}; {lost}"


def required_url(text: str | None) -> str:
    """The URL of the store that was named.

    Raises:
        click.UsageError: no store was named.
        ValueError: as `store_url`.
    """
    if text is None:
        raise click.UsageError("Missing the store: name it as s3://bucket/prefix, by '--store' or by ACCEL_STORE.")
    return store_url(text)


def option(name: str, *into: str, **attributes: Any) -> Callable[[Command], Command]:
    """An option with a variable of the same name for all commands."""
    variable = "ACCEL_" + name.removeprefix("--").upper().replace("-", "_")
    return click.option(name, *into, envvar=variable, show_envvar=True, **attributes)


def output_options(command: Command) -> Command:
    """`--output`, `--verbose`, `--quiet` -> ``output``."""

    @option(
        "--output",
        type=OUTPUT_FORMS,
        default="text",
        show_default=True,
        help="The form of the result: text for people, json for programs.",
    )
    @click.option("-v", "--verbose", is_flag=True, help="Report each request, on stderr.")
    @click.option("-q", "--quiet", is_flag=True, help="Print only data and errors.")
    @functools.wraps(command)
    def wrapped(*args: Any, output: str, verbose: bool, quiet: bool, **others: Any) -> Any:
        ctx = click.get_current_context()
        if ctx.get_parameter_source("output") is not ParameterSource.COMMANDLINE:
            output = ctx.meta.get(OUTPUT_META, output)
        log_as(TextLines())
        shown = Output(output == "json", quiet, verbose)
        with shown.raised_at_end():
            return command(*args, output=shown, **others)

    return wrapped  # type: ignore[return-value]  # the same command with other arguments


def log_option(command: Command) -> Command:
    """`--log-format` of a command that runs for long and logs to stderr. Must be placed below `output_options`."""

    @_LOG_FORMAT
    @functools.wraps(command)
    def wrapped(*args: Any, log_format: LogForm | None, **others: Any) -> Any:
        log_as(log_lines(log_format))
        return command(*args, **others)

    return wrapped  # type: ignore[return-value]  # likewise


def log_format_option(command: Command) -> Command:
    """`--log-format` -> ``log_format``, for a command that configures its log itself."""
    return _LOG_FORMAT(command)


_LOG_FORMAT = option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Form of the log on stderr; by default text on a terminal, else JSON.",
)

_S3_OPTIONS = ("endpoint_url", "profile", "region", "ca_bundle", "path_style", "no_sign_request", "client")
_STYLES = {"path": True, "virtual": False}


def store_options(command: Command) -> Command:
    """Which store and how to reach it, and all of `output_options` -> ``store`` and ``output``."""

    @option("--store", metavar="URL", help="The store of the objects: s3://bucket/prefix, or bucket/prefix.")
    @option("--endpoint-url", metavar="URL", help="An S3 endpoint other than AWS, with http:// or https://.")
    @option("--profile", help="A profile of the AWS configuration.")
    @option("--region", help="An AWS region.")
    @option("--ca-bundle", metavar="FILE", help="Certificates of the endpoint's authority, as PEM.")
    @option(
        "--addressing-style",
        "path_style",
        type=click.Choice(["auto", *_STYLES]),
        callback=lambda _ctx, _param, style: _STYLES.get(style),
        help="Where the bucket is named: in the path, or in the host's name (virtual), as OSS and COS want it.",
    )
    @option("--no-sign-request", is_flag=True, help="Send no credentials.")
    @option(
        "--client",
        type=click.Choice(["boto3", "obstore"]),
        default=StoreSettings().client,
        show_default=True,
        help="S3 client.",
    )
    @click.argument(_URL, metavar="[URL]", required=False)
    @output_options
    @functools.wraps(command)
    def wrapped(*args: Any, store: str | None, output: Output, **others: Any) -> Any:
        try:
            settings = StoreSettings(**{name: others.pop(name) for name in _S3_OPTIONS})
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="'--endpoint-url'") from error
        return command(*args, store=StoreChoice(store, settings, output), output=output, **others)

    return wrapped  # type: ignore[return-value]  # likewise


_IMAGE_HELP = "The metadata image, as JSON, or the name of a source; else the catalog's, if any."


def image_option(command: Command) -> Command:
    """`--image` -> ``image``, already read; None if it is not given. An image on S3 uses the options of the store."""

    @option("--image", metavar="FILE_OR_URL", help=_IMAGE_HELP)
    @functools.wraps(command)
    def wrapped(*args: Any, image: str | None, **others: Any) -> Any:
        return command(*args, image=None if image is None else _read_image(image, others), **others)

    return wrapped  # type: ignore[return-value]  # likewise


def _read_image(place: str, others: Mapping[str, Any]) -> MetadataImage:
    try:
        return read_image(place, StoreSettings(**{name: others[name] for name in _S3_OPTIONS if name in others}))
    except ImageRefused:
        raise
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--image'") from error
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error)) from error


@dataclass(frozen=True, slots=True)
class OpenedReader:
    """An accelerator, and the layout of its objects."""

    accelerator: ReadAccelerator
    layout: ObjectLayout


@dataclass(frozen=True, slots=True)
class ReaderChoice:
    """The parts of a lookup; without an image, the image of the store's catalog is used."""

    image: MetadataImage | None
    store: StoreChoice
    policy: str

    @contextmanager
    def open(self, store: CountingStore, *, slow_seconds: float | None = None) -> Iterator[OpenedReader]:
        """An accelerator for one command, over the opened store. The cost of reading the catalog is not counted.

        Args:
            store: the store.
            slow_seconds: lookups of at least this duration are kept; None = no lookup.

        Raises:
            click.UsageError: no image is named, and there is no catalog.
        """
        with self._images(store) as (images, namespace):
            settings = Settings(policy=self.policy, slow_lookup_seconds=slow_seconds)
            store.reset()
            with ReadAccelerator(images, store, settings=settings) as accelerator:
                yield OpenedReader(accelerator, ObjectLayout(namespace=namespace))

    @contextmanager
    def _images(self, store: CountingStore) -> Iterator[tuple[ImageSource, str]]:
        if self.image is not None:
            yield StaticImages(self.image), self.image.namespace
            return
        with _catalog_instead_of_image(store) as catalog:
            yield catalog.images(), catalog.format.namespace


def _catalog_instead_of_image(store: CountingStore) -> ObjectCatalog:
    try:
        return ObjectCatalog.open(store)
    except CatalogMissing as error:
        found = "the store has no catalog, which would be used without one"
        raise click.UsageError(f"Missing option '--image' (or ACCEL_IMAGE): {found}.") from error


def reader_options(command: Command) -> Command:
    """`--policy`, `--image` and all of `store_options` -> ``reader``."""

    @option(
        "--policy",
        type=POLICY,
        default=DEFAULT_POLICY,
        show_default=True,
        help="The policy that chooses which objects to open.",
    )
    @image_option
    @store_options
    @functools.wraps(command)
    def wrapped(*args: Any, policy: str, image: MetadataImage | None, store: StoreChoice, **others: Any) -> Any:
        return command(*args, reader=ReaderChoice(image, store, policy), **others)

    return wrapped  # type: ignore[return-value]  # likewise


PAYLOAD_FORMS = click.Choice(["none", "text", "hex", "base64"])


def payload_text(payload: bytes, form: str) -> str | None:
    """A payload in one of the forms; None for no payload."""
    if form == "text":
        return payload.decode("utf-8", "backslashreplace")
    if form == "hex":
        return payload.hex()
    return base64.b64encode(payload).decode("ascii") if form == "base64" else None


def slow_log_option(command: Command) -> Command:
    """`--slow-log` -> ``slow_log``, in seconds; None = no log."""
    text = "Print the trace of lookups that took at least this long, on stderr."
    return click.option("--slow-log", type=TIME, metavar="TIME", help=text)(command)


@contextmanager
def telling_slow(accelerator: ReadAccelerator, output: Output) -> Iterator[None]:
    """Prints the last 32 slow lookups at the end, also of a command that fails."""
    try:
        yield
    finally:
        slow_lookups = accelerator.slow_lookups()
        if slow_lookups:
            from accel.cli.explanations import explanation_lines  # noqa: PLC0415 - few lookups are slow

            for slow in slow_lookups:
                output.summary(Shown(slow.to_dict(), explanation_lines(slow.text().splitlines())))


@dataclass(frozen=True, slots=True)
class Place:
    """The objects that the user named: a layout, a store if needed, and an image if given."""

    image: MetadataImage | None
    layout: ObjectLayout
    store: StoreChoice

    def with_catalog(self) -> Place:
        """The same with the image of the store's catalog.

        Raises:
            click.UsageError: there is no catalog, or it is of another namespace than was named.
        """
        with _catalog_instead_of_image(self.store.open()) as catalog:
            layout = catalog.parts.layout
            if self.layout not in (layout, ObjectLayout()):
                found = f"--namespace {self.layout.namespace} and a catalog of namespace {layout.namespace}"
                raise click.UsageError(f"Expected one namespace, found {found}.")
            return Place(catalog.image(), layout, self.store)


def place_options(command: Command) -> Command:
    """`--image`, `--namespace` and all of `store_options`, none of them required -> ``place``."""

    @image_option
    @option("--namespace", type=_Parsed("name", _layout), help="Namespace of the objects, if there is no image.")
    @store_options
    @functools.wraps(command)
    def wrapped(
        *args: Any, image: MetadataImage | None, namespace: ObjectLayout | None, store: StoreChoice, **others: Any
    ) -> Any:
        if image is not None and namespace is not None and namespace.namespace != image.namespace:
            found = f"--namespace {namespace.namespace} and an image of namespace {image.namespace}"
            raise click.UsageError(f"Expected one namespace, found {found}.")
        layout = ObjectLayout(namespace=image.namespace) if image is not None else namespace or ObjectLayout()
        return command(*args, place=Place(image, layout, store), **others)

    return wrapped  # type: ignore[return-value]  # likewise


def range_options(command: Command) -> Command:
    """`--stream`, `--start`, `--end` -> ``stream_id``, ``start``, ``end``."""
    for decorate in (
        click.option("--end", type=int, default=-1, help="One past the last offset; -1, the default, means no end."),
        click.option("--start", type=int, required=True, help="The first offset to read."),
        click.option("--stream", "stream_id", type=int, required=True, help="The stream's id."),
    ):
        command = decorate(command)
    return command


def command(
    short_help: str | None, *examples: str, name: str | None = None, group: click.Group | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command, in a group if one is given, whose help ends with examples to copy."""
    epilog = "\n".join(["\b", "Examples:", *(f"  {line}" for line in examples)])
    return (group or click).command(name, cls=StoreCommand, short_help=short_help, epilog=epilog)


def yes_option(text: str = "Do it; without it nothing is changed.") -> Callable[[Command], Command]:
    """`--yes`, without which a command only shows the planned changes -> ``yes``."""
    return click.option("--yes", is_flag=True, help=text)


INTEGER = click.IntRange(0, INTEGER_MAX)
"""An id, an offset or a count."""


def limit_option(default: int, text: str) -> Callable[[Command], Command]:
    """`--limit` -> ``limit``: the number of items to show; 0 for all."""
    return click.option("--limit", type=INTEGER, default=default, show_default=True, help=text)


EXIT_FAILED = 1
"""Nothing was done, or something could not be checked."""

EXIT_PARTIAL = 4
"""Part of the work was done, and the rest could not be."""


def end_with(code: int) -> NoReturn:
    """End the running command with an exit code."""
    click.get_current_context().exit(code)


_OBJECT_KEY = re.compile(r"(?:(?P<prefix>.+)/)?[0-9a-f]{8,16}/(?P<namespace>[^/]+)/[0-9]+")
SHOWN_MAX = 5

Found = Counter[tuple[str, str]]
"""Number of objects of each (prefix, namespace)."""


def look_around(store: ObjectStore) -> tuple[Found, int]:
    """The objects among the first 1,000 keys, and the number of other keys. One request."""
    found: Found = Counter()
    others = 0
    for info in store.list("", limit=LIST_PAGE_KEYS_MAX):
        match = _OBJECT_KEY.fullmatch(info.key)
        place = None if match is None else (match["prefix"] or "", match["namespace"])
        if place is not None and f"/{info.key}".find(f"/{ACCEL_PREFIX}") < 0:
            found[place] += 1
        else:
            others += 1
    return found, others


def found_text(found: Found, others: int) -> str:
    """The contents of a place, in half a sentence."""
    if not found:
        return f"{others} other keys" if others else "nothing"
    places = [
        f"{count} of namespace {printable(namespace)!r}" + (f" below {printable(prefix)}/" if prefix else "")
        for (prefix, namespace), count in found.most_common(SHOWN_MAX)
    ]
    more = f", and in {len(found) - SHOWN_MAX} more places" if len(found) > SHOWN_MAX else ""
    return f"objects: {', '.join(places)}{more}"


def wrong_place(choice: StoreChoice, layout: ObjectLayout) -> WrongPlace | None:
    """The error that reports what is at the store if no object of a namespace is there; else None.

    Two requests at most.
    """
    url = required_url(choice.url)
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.strip("/").partition("/")
    found, others = look_around(choice.open())
    if found["", layout.namespace]:
        return None
    parts = [f"there: {found_text(found, others)}"]
    if prefix and not found:
        root = StoreChoice(f"{scheme}://{bucket}", choice.settings, choice.output).open()
        parts.append(f"in the whole bucket: {found_text(*look_around(root))}")
    return WrongPlace(
        f"expected objects of namespace {layout.namespace!r} at {redacted(url)}, "
        f"found none among the first {LIST_PAGE_KEYS_MAX} keys; {'; '.join(parts)}"
    )


@contextmanager
def told_from_lost(choice: StoreChoice, layout: ObjectLayout) -> Iterator[None]:
    """Replace the error of a lost object by `WrongPlace` if the store has no object of its namespace at all."""
    try:
        yield
    except ObjectLost as error:
        try:
            wrong = wrong_place(choice, layout)
        except AccelError:  # without the list permission the first error is raised
            wrong = None
        if wrong is not None:
            raise wrong from error
        raise
