"""Starts and stops a cluster in a directory: monitor, OSD, gateway, one user.

Daemons of a cluster are known by their command line, which names the configuration in its directory. So they are found
whoever started them, whichever way that ended, and no process of anybody else can be mistaken for one.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING
from uuid import uuid4

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.servers.ceph.configuration import CONFIGURATION_NAME, HOST, configuration, free_ports

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_COMMAND_SECONDS_MAX = 60
_POLL_SECONDS = 0.05
_POLLS_MAX = 600
_TAIL_LINES = 8


class CephFailed(Exception):
    """A part of Ceph did not start; the message has its last words."""


GUEST = "guest"


@dataclass(frozen=True)
class Gateway:
    """An S3 server that runs: its URL, the keys of a user who may create buckets, and those of one without rights.

    The first may set the policies of the second, who is called `GUEST`.
    """

    endpoint_url: str
    access_key: str
    secret_key: str
    guest_access_key: str
    guest_secret_key: str

    def environment(self) -> dict[str, str]:
        """The variables that make tests use it."""
        return {
            "ACCEL_TEST_S3_ENDPOINT": self.endpoint_url,
            "ACCEL_TEST_S3_ACCESS_KEY": self.access_key,
            "ACCEL_TEST_S3_SECRET_KEY": self.secret_key,
            "ACCEL_TEST_S3_GUEST": GUEST,
            "ACCEL_TEST_S3_GUEST_ACCESS_KEY": self.guest_access_key,
            "ACCEL_TEST_S3_GUEST_SECRET_KEY": self.guest_secret_key,
        }


def unwind_on_signals() -> None:
    """Let the signals that end a process raise `SystemExit`, so that it stops its servers on the way out."""

    def end(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, end)


@contextmanager
def running() -> Iterator[Gateway]:
    """Run a cluster in a temporary directory while the context lasts, and leave nothing behind.

    Raises:
        CephFailed: it did not start.
    """
    directory = Path(tempfile.mkdtemp(prefix="accel-ceph-"))
    try:
        yield start(directory)
    finally:
        stop(directory)


def start(directory: Path) -> Gateway:
    """Start a cluster in a directory that is empty or does not exist; returns once it serves.

    Daemons go on after this process, until `stop`. A start that fails or is interrupted stops what it has started.

    Raises:
        CephFailed: it did not start; the directory is gone.
        FileExistsError: there is something in the directory.
    """
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FileExistsError(f"{directory} is not empty; expected a directory for a new cluster")
    try:
        return _start(directory, *free_ports())
    except BaseException:
        stop(directory)
        raise


def stop(directory: Path) -> None:
    """Stop all daemons of the cluster in a directory and delete it; does nothing where there is none.

    Raises:
        CephFailed: a daemon does not end.
        FileExistsError: the directory has something else in it.
    """
    directory = directory.resolve()
    _kill(directory)
    if directory.is_dir() and any(directory.iterdir()) and not (directory / CONFIGURATION_NAME).is_file():
        raise FileExistsError(f"{directory} has no {CONFIGURATION_NAME}: it is not the directory of a cluster")
    shutil.rmtree(directory, ignore_errors=True)


def _kill(directory: Path) -> None:
    # The objects are in memory and go anyway: nothing is gained by asking politely.
    for _ in range(_POLLS_MAX):
        found = processes(directory)
        if not found:
            return
        for number in found:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        Event().wait(_POLL_SECONDS)
    raise CephFailed(f"processes {processes(directory)} of {directory} do not end")


def processes(directory: Path, program: str = "") -> list[int]:
    """Ids of the processes that run with the configuration in a directory: all, or those of one program."""
    found = []
    option = b"\0-c\0%b\0" % os.fsencode(directory.resolve() / CONFIGURATION_NAME)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended in between
            command = path.read_bytes()  # of a dead process that nobody has waited for: nothing
            if option in command and command.partition(b"\0")[0].endswith(program.encode()):
                found.append(int(path.parent.name))
    return found


def _start(directory: Path, monitor_port: int, gateway_port: int) -> Gateway:
    fsid = str(uuid4())
    config = directory / CONFIGURATION_NAME
    config.write_text(configuration(directory, fsid, monitor_port, gateway_port))
    for name in ("mon", "osd", "rgw"):
        (directory / name).mkdir()
    _start_monitor(directory, fsid, monitor_port)
    _start_osd(directory)
    tokens = [secrets.token_hex(size) for size in (10, 20, 10, 20)]
    gateway = Gateway(f"http://{HOST}:{gateway_port}", *tokens)
    _create_users(directory, gateway)
    _run(directory, "radosgw", "-n", "client.rgw")
    _wait_until_it_serves(directory, gateway)
    return gateway


def _start_monitor(directory: Path, fsid: str, port: int) -> None:
    # Nobody checks these keys, but a monitor does not begin without some.
    keyring, monitors = str(directory / "keyring"), str(directory / "monmap")
    _run(directory, "ceph-authtool", "-C", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    address = f"[v2:{HOST}:{port}]"
    _run(directory, "monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, monitors)
    _run(directory, "ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors, "--keyring", keyring)
    _run(directory, "ceph-mon", "-i", "a")


def _start_osd(directory: Path) -> None:
    own_id = str(uuid4())
    _run(directory, "ceph", "osd", "new", own_id)
    _run(directory, "ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", own_id)
    _run(directory, "ceph-osd", "-i", "0")


def _create_users(directory: Path, gateway: Gateway) -> None:
    users = (
        ("test", gateway.access_key, gateway.secret_key, ("--caps=user-policy=*",)),
        (GUEST, gateway.guest_access_key, gateway.guest_secret_key, ()),
    )
    for name, access_key, secret_key, more in users:
        keys = (f"--access-key={access_key}", f"--secret-key={secret_key}")
        _run(directory, "radosgw-admin", "user", "create", f"--uid={name}", f"--display-name={name}", *keys, *more)


def _wait_until_it_serves(directory: Path, gateway: Gateway) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=gateway.endpoint_url,
        aws_access_key_id=gateway.access_key,
        aws_secret_access_key=gateway.secret_key,
        region_name="us-east-1",
        config=Config(connect_timeout=1, read_timeout=1, retries={"total_max_attempts": 1}),
    )
    for _ in range(_POLLS_MAX):
        # Signed, so that nobody is taken for ours who took its port.
        with suppress(ClientError, BotoCoreError):
            _use_once(client)
            return
        if not processes(directory, "radosgw"):
            raise _failure(directory, "radosgw ended before it served")
        Event().wait(_POLL_SECONDS)
    raise _failure(directory, f"radosgw did not serve when asked {_POLLS_MAX} times")


def _use_once(client: S3Client) -> None:
    """Make a bucket, an object and an upload: at the first of each the gateway creates pools, which takes seconds."""
    bucket, key = "first-use", "k"
    client.create_bucket(Bucket=bucket)
    client.put_object(Bucket=bucket, Key=key, Body=b"x")
    upload_id = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    client.upload_part(Bucket=bucket, Key=key, UploadId=upload_id, PartNumber=1, Body=b"x")
    client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
    client.delete_object(Bucket=bucket, Key=key)
    client.delete_bucket(Bucket=bucket)


def _run(directory: Path, program: str, *arguments: str) -> None:
    """Run a program of Ceph to its end; that of a daemon comes when it has gone to the background."""
    command = (program, "-c", str(directory / CONFIGURATION_NAME), *arguments)
    # A session of its own: who interrupts the tests at the keyboard wants the servers to see how they end.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CEPH_")}
    output = directory / "commands.log"  # not a pipe: a daemon would keep that open for ever
    try:
        with output.open("a") as log:
            subprocess.run(  # noqa: S603 - our own words
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=_COMMAND_SECONDS_MAX,
                start_new_session=True,
                check=True,
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise _failure(directory, f"{program}: {error}") from error


def _failure(directory: Path, what: str) -> CephFailed:
    """With the end of each log, the latest last."""
    logs = sorted(directory.glob("*.log"), key=lambda path: path.stat().st_mtime)
    lines = ((path.name, path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]) for path in logs)
    words = "\n".join(f"{name}: {line}" for name, tail in lines for line in tail)
    return CephFailed(f"{what}; the last words of its cluster:\n{words}")
