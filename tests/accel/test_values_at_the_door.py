"""The kinds of values against all parameters of public classes and functions, found by their signatures.

Each value is taken as its plain one, or is refused in words before the body of the function begins. So nothing can have
changed by then, and what the body stores is what it would store of the plain value. A parameter with an annotation
that this module does not know fails a test: the annotation gets a rule in `RULES`, or is named in `COLLECTIONS`.
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
from array import array
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from threading import TIMEOUT_MAX
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest

import accel
from accel.compaction.settings import CompactionSettings
from accel.errors import AccelError, ImageRefused, InvalidArgument, InvalidRequest
from accel.history.rules.configuration import RetentionKind
from accel.history.store.settings import HistorySettings
from accel.image import StreamObject
from accel.lookup.accelerator import AcceleratorBase
from accel.maintenance.settings import MaintenanceSettings
from accel.streams.acknowledgements import WriteFuture
from accel.streams.settings import ForwardingSettings, SegmentsSettings, StreamWriterSettings
from loaders.format import RecordBatch
from loaders.settings import MergeSettings, plain_arguments

# The kinds of values


class Chosen(str, enum.Enum):  # noqa: UP042 - the text of a StrEnum is its value
    """An enumeration of text, whose text is not its value."""

    SHOP = "shop"


class Named(enum.StrEnum):
    SHOP = "shop"


class Lying(str):
    """A str whose texts are not its value."""

    __slots__ = ()

    def __str__(self) -> str:
        return "../../evil"

    def __format__(self, spec: str) -> str:
        return "../../evil"


class Indexed:
    """Has an index, and is no number otherwise."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


class Weekday(enum.IntEnum):
    THIRD = 3


INTEGERS: tuple[Any, ...] = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
NUMBERS: dict[str, Callable[[int], Any]] = {
    "int": int,
    **{
        kind.__name__: kind
        for kind in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
    },
    "an index": Indexed,
    "float": float,
    "float32": np.float32,
    "float64": np.float64,
    "Fraction": Fraction,
}
"""By kind, what makes it of a number."""

TEXTS: dict[str, Any] = {
    "str": "shop",
    "a subclass of str": Lying("shop"),
    "an enumeration of text": Chosen.SHOP,
    "StrEnum": Named.SHOP,
    "numpy's str": np.str_("shop"),
}
BYTES: dict[str, Any] = {
    "bytes": b"shop",
    "bytearray": bytearray(b"shop"),
    "memoryview": memoryview(b"shop"),
    "every second byte": memoryview(b"s.h.o.p.")[::2],
    "another format": memoryview(array("H", b"shop")),
}
BOOLS: dict[str, Any] = {"bool": True, "numpy's bool": np.bool_(True)}
ENDLESS: dict[str, Any] = {
    "infinite": float("inf"),
    "numpy's infinite": np.float32("inf"),
    "longer than a system can wait": 1e10,
    "None": None,
}
OTHERS: dict[str, Any] = {
    "no number": float("nan"),
    "numpy's no number": np.float64("nan"),
    "minus infinite": float("-inf"),
    "a fraction": 8.5,
    "negative": -8,
    "numpy's negative": np.int8(-8),
    "a negative fraction": np.float32(-0.5),
    "huge": 2**70,
    "too long to print": 10**5000,
    "Decimal": Decimal(8),
    "Path": Path("shop"),
    "a list": [8],
    "an empty list": [],
    "a generator": iter(()),
    "a dict": {},
    "datetime": datetime(2026, 1, 1, tzinfo=UTC),
    "timedelta": timedelta(seconds=8),
    "an array": np.array([8, 9]),
}
REFUSED = object()


def values_of(number: int) -> dict[str, Any]:
    """A value of each kind; those that are numbers have this one, if their type can."""
    numbers = {name: kind(number if _fits(kind, number) else 8) for name, kind in NUMBERS.items()}
    return numbers | TEXTS | BYTES | BOOLS | ENDLESS | OTHERS


def _fits(kind: Any, number: int) -> bool:
    return (
        not (inspect.isclass(kind) and issubclass(kind, np.integer))
        or np.iinfo(kind).min <= number <= np.iinfo(kind).max
    )


def plain_int(value: Any, name: str) -> object:  # noqa: ARG001 - the others' arguments
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__") or isinstance(value, np.ndarray):
        return REFUSED
    return int(value.__index__()) if abs(value.__index__()) < 1 << 63 else REFUSED


def plain_float(value: Any, name: str) -> object:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number | Fraction):
        return REFUSED
    if not -(2**80) < value < 2**80 or (name.endswith("_seconds") and value > TIMEOUT_MAX):
        return REFUSED
    return int(value) if isinstance(value, int) else float(value)


def plain_limit(value: Any, name: str) -> object:
    if any(value is each for each in (*ENDLESS.values(), OTHERS["huge"])):
        return None
    plain = plain_float(value, name)
    return REFUSED if isinstance(plain, int | float) and plain < 0 else plain


def plain_text(value: Any, name: str) -> object:  # noqa: ARG001 - likewise
    return "shop" if isinstance(value, str) else REFUSED


def plain_bytes(value: Any, name: str) -> object:  # noqa: ARG001 - likewise
    return b"shop" if isinstance(value, bytes | bytearray | memoryview) else REFUSED


def plain_bool(value: Any, name: str) -> object:  # noqa: ARG001 - likewise
    return True if any(value is each for each in BOOLS.values()) else REFUSED


def plain_path(value: Any, name: str) -> object:  # noqa: ARG001 - likewise
    return Path("shop") if isinstance(value, str | Path) else REFUSED


class Rule(NamedTuple):
    """What a parameter accepts.

    Args:
        plain: the plain value of a value, by a parameter's name; or `REFUSED`.
        good: a value for calls that try another parameter.
    """

    plain: Callable[[Any, str], object]
    good: object


RULES = {
    "int": Rule(plain_int, 8),
    "float": Rule(plain_float, 8.0),
    "TimeLimit": Rule(plain_limit, 8.0),
    "str": Rule(plain_text, "shop"),
    "bytes": Rule(plain_bytes, b"shop"),
    "bool": Rule(plain_bool, True),
    "Path": Rule(plain_path, Path("shop")),
}

COLLECTIONS = {
    "Collection[int]",
    "Collection[str]",
    "Cut",
    "Cut | None",
    "Integers",
    "Iterable[SegmentId]",
    "Iterable[int]",
    "Iterable[int] | Mapping[int, int | None]",
    "Iterable[int] | None",
    "Iterable[tuple[bytes, Key]]",
    "Iterable[tuple[int, StreamObject]]",
    "Iterable[tuple[int, int, int]]",
    "Key",
    "Mapping[int, NodeImage]",
    "Mapping[int, StreamImage]",
    "Mapping[int, StreamObject] | None",
    "Mapping[int, int]",
    "Mapping[int, int] | None",
    "Mapping[str, Any]",
    "Mapping[str, Lease]",
    "SegmentId",
    "Sequence[SegmentId]",
    "Sequence[Sequence[float]]",
    "Sequence[UUID]",
    "Sequence[bytes]",
    "UUID",
    "UUID | None",
    "bool | FormatRecord",
    "bool | MaintenanceSettings",
    "frozenset[int]",
    "str | ObjectStore",
    "str | Path | None",
}
"""Annotations with plain values inside, which their functions check: `test_collections_at_the_door.py` tries each."""

PLAIN_WORDS = re.compile(r"\b(int|float|str|bytes|bool|Path|Any|Cut|Key|SegmentId|Integers|UUID)\b")
"""What is in an annotation of a plain value, or of a collection of some."""

# The parameters


SETTINGS: tuple[type[Any], ...] = (
    *(accel.CatalogSettings, accel.ReaderSettings, accel.Settings, accel.StoreSettings),
    *(CompactionSettings, ForwardingSettings, HistorySettings, MaintenanceSettings, MergeSettings),
    *(SegmentsSettings, StreamWriterSettings),
)
VALUES: dict[type[Any], dict[str, Any]] = {
    RecordBatch: {"stream_id": 8, "epoch": 8, "base_offset": 8, "count": 8, "payload": b"shop"},
    StreamObject: {"ref": accel.ObjectRef(8), "start": 8, "end": 8},
    accel.FormatRecord: {"namespace": "shop"},
    accel.ObjectRef: {"object_id": 8},
    accel.RetentionPolicy: {"kind": RetentionKind.SIZE, "minimum": 8},
}
"""Values that are checked when they are made, with arguments that make one."""

WITHOUT_NUMBERS = {
    *("Answer", "Ending", "Event", "ImageSource"),  # returned by Accel, or written by a caller
    *("ConnectionSettings", "StreamConfiguration"),  # made of other settings
    "Request",  # checked by the calls that take many, so that one wrong request fails alone
}


class Parameter(NamedTuple):
    """A parameter of a public function.

    Args:
        function: as it is called.
        name: its name.
        annotation: as it is written.
        owner: the class, for a method that is called with an object of it.
    """

    function: Callable[..., Any]
    name: str
    annotation: str
    owner: type[Any] | None


def parameters() -> Iterator[Parameter]:
    exported = [getattr(accel, name) for name in accel.__all__ if name not in WITHOUT_NUMBERS]
    for target in [*exported, WriteFuture]:
        if not inspect.isclass(target):
            yield from _of(target, None)
        elif not (issubclass(target, AccelError) or target in SETTINGS or target in VALUES):
            for name, member in inspect.getmembers(target, inspect.isroutine):
                is_method = inspect.isfunction(inspect.getattr_static(target, name))
                if name == "__init__" or not name.startswith("_"):
                    yield from _of(member, target if is_method else None)


def _of(function: Callable[..., Any], owner: type[Any] | None) -> Iterator[Parameter]:
    for name, parameter in list(inspect.signature(function).parameters.items())[owner is not None :]:
        yield Parameter(function, name, str(parameter.annotation), owner)


ALL = list(parameters())


def rule_of(annotation: str) -> Rule | None:
    return RULES.get(annotation.removesuffix(" | None"))


def test_every_parameter_has_a_rule_or_takes_an_object() -> None:
    others = {each.annotation for each in ALL if rule_of(each.annotation) is None}
    assert {each for each in others if PLAIN_WORDS.search(each) and not each.startswith("Callable[")} <= COLLECTIONS
    assert sum(rule_of(each.annotation) is not None for each in ALL) > 200


class Anything:
    """An object of a caller: of which class it is a double is not looked at; it has no items."""

    def __iter__(self) -> Iterator[object]:
        return iter(())


class Begun(Exception):
    """Carries the arguments that a function received."""


def arguments(parameter: Parameter, value: object) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by place and by name: the value for its parameter, and good ones for the others."""
    places: list[Any] = []
    options: dict[str, Any] = {}
    for name, each in inspect.signature(parameter.function).parameters.items():
        rule = rule_of(str(each.annotation))
        good = each.default if each.default is not each.empty else Anything() if rule is None else rule.good
        given = value if name == parameter.name else good
        if each.kind is each.POSITIONAL_OR_KEYWORD:
            places.append(given)
        elif each.kind is each.KEYWORD_ONLY:
            options[name] = given
    if parameter.owner is not None:
        places[0] = object.__new__(parameter.owner)
        if parameter.owner is accel.Stream:
            places[0].parts = None  # its methods ask for it before they begin
    return places, options


ENGINE: Any = vars(AcceleratorBase)["_engine"].fget
REQUEST_FIELDS = tuple(accel.Request.__annotations__)


def received(parameter: Parameter, value: object) -> dict[str, Any]:
    """The arguments that the body of a function begins with; nothing of it is run."""
    function: Any = inspect.unwrap(getattr(parameter.function, "__func__", parameter.function))
    places, options = arguments(parameter, value)

    def stop(frame: FrameType, event: str, _: object) -> None:
        if parameter.function is accel.ReadAccelerator.get_objects:  # its body makes them plain itself, then uses them
            if event == "call" and frame.f_code is ENGINE.__code__ and frame.f_back is not None:
                begun = frame.f_back.f_locals
                raise Begun({**begun, **{name: getattr(begun["request"], name) for name in REQUEST_FIELDS}})
        elif event == "call" and frame.f_code is function.__code__:
            raise Begun(dict(frame.f_locals))

    earlier = sys.getprofile()
    sys.setprofile(stop)
    try:
        returned = parameter.function(*places, **options)
        if inspect.iscoroutine(returned):
            returned.send(None)
    except Begun as begun:
        return dict(begun.args[0])
    finally:
        sys.setprofile(earlier)
    raise AssertionError(f"{parameter} was never called")


def is_in_words(error: Exception, name: str) -> bool:
    text = str(error)
    is_ours = type(error) in (ImageRefused, InvalidArgument, InvalidRequest, ValueError)
    return is_ours and text.startswith("expected ") and f"as {name}, found " in text and len(text) < 200


CHECKED = [each for each in ALL if rule_of(each.annotation) is not None]


@pytest.mark.parametrize("parameter", CHECKED, ids=lambda each: f"{each.function.__qualname__}-{each.name}")
def test_each_kind_becomes_plain_or_is_refused_before_the_body_begins(parameter: Parameter) -> None:
    rule = rule_of(parameter.annotation)
    assert rule is not None
    for kind, value in values_of(8).items():
        wanted = None if value is None and "None" in parameter.annotation else rule.plain(value, parameter.name)
        if wanted is REFUSED:
            with pytest.raises(ValueError, match="expected") as refused:
                received(parameter, value)
            assert is_in_words(refused.value, parameter.name), (kind, refused.value)
        else:
            found = received(parameter, value)[parameter.name]
            assert (type(found), found) == (type(wanted), wanted), kind


def made_or_refused(kind: type[Any], fields: dict[str, Any]) -> object:
    try:
        return kind(**fields)
    except (ValueError, AccelError) as error:
        return error


MADE: list[tuple[type[Any], dict[str, Any]]] = [*((kind, {}) for kind in SETTINGS), *VALUES.items()]


@pytest.mark.parametrize(("kind", "needed"), MADE, ids=[kind.__name__ for kind, _ in MADE])
def test_the_fields_of_settings_and_values_are_plain(kind: type[Any], needed: dict[str, Any]) -> None:
    good = kind(**needed)
    annotations = {name: each for base in kind.__mro__ for name, each in vars(base).get("__annotations__", {}).items()}
    checked = {name: each for name, each in annotations.items() if rule_of(each) is not None}
    assert checked
    for name, annotation in checked.items():
        rule, present = rule_of(annotation), getattr(good, name)
        assert rule is not None
        number = int(present) if isinstance(present, int | float) and present >= 1 else 8
        for value in values_of(number).values():
            if kind in (RecordBatch, StreamObject) and isinstance(value, int) and value >= 1 << 63:
                continue  # refused by what takes them: there are many, and an int is not looked at
            wanted = None if value is None and "None" in annotation else rule.plain(value, name)
            outcome = made_or_refused(kind, needed | {name: value})
            if isinstance(outcome, Exception):  # also a number out of bounds, or a text that is no choice
                assert str(outcome).startswith("expected "), (name, value, outcome)
                assert wanted is REFUSED or "of type" not in str(outcome), (name, value)
            else:
                found = getattr(outcome, name)
                assert (type(found), found) == (type(wanted), wanted), (name, value)


@plain_arguments(ValueError)
def doubled(number: int, *others: int, times: int = 2, pause_seconds: float | None = None) -> object:
    return number, others, times, pause_seconds


def test_arguments_by_name_are_checked_as_those_by_place_and_too_many_are_refused_by_python() -> None:
    eight: Any = np.uint8(8)
    assert repr(doubled(eight, times=eight, pause_seconds=np.float32(0.5))) == "(8, (), 8, 0.5)"  # type: ignore[arg-type]
    assert repr(doubled(number=eight)) == "(8, (), 2, None)"
    for wrong in ({"number": True}, {"number": 8, "times": 8.0}, {"number": 8, "pause_seconds": 1e10}):
        with pytest.raises(ValueError, match=r"expected .* as (number|times|pause_seconds), found"):
            doubled(**wrong)
    open_any: Any = accel.open_store
    for places, options in ((("memory://a", None, 3), {}), ((), {"place": "memory://a"})):
        with pytest.raises(TypeError, match="argument"):
            open_any(*places, **options)


def test_a_decorated_function_of_asyncio_is_one() -> None:
    assert inspect.iscoroutinefunction(accel.AsyncReadAccelerator.get_objects)
    assert not inspect.iscoroutinefunction(accel.ReadAccelerator.get_objects)
