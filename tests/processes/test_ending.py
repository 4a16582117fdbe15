"""Signals end every command, whatever it waits for; in processes of their own, as handlers belong to a process."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from accel.system import SYSTEM
from tests.processes.children import CHILD_SECONDS

COMMANDS = (
    "catalog verify {}",
    "catalog gc --yes {}",
    "stream read {} --scope shop --stream orders --follow",
    "serve {} --port 0",
)

ENDS = "from accel.cli.ending import end_on_signals; end_on_signals()\n"

IN_C = """
import ctypes
c, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
while True:
    try:
        print("ready", flush=True)
        c.pthread_mutex_lock(mutex)
    except KeyboardInterrupt:  # before it waited
        print("interrupted")
"""
"""Waits for ever in C, which no handler of Python interrupts, as a question to a name server that is away."""


def started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - shells ignore it in jobs
    )


def test_a_signal_ends_each_command_that_waits_for_a_store_with_a_line(aws_environment: pytest.MonkeyPatch) -> None:
    aws_environment.setenv("AWS_MAX_ATTEMPTS", "1")
    with ExitStack() as stack:
        running = []
        for command in COMMANDS:
            silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # it takes requests, and answers none
            silent.settimeout(CHILD_SECONDS)
            aws_environment.setenv("ACCEL_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
            running.append((silent, started("-m", "accel.cli", *command.format("s3://bucket/prefix").split())))
        for silent, _ in running:
            stack.enter_context(silent.accept()[0])
        for _, process in running:
            process.send_signal(signal.SIGTERM)
        for _, process in running:
            _, told = process.communicate(timeout=CHILD_SECONDS)
            assert process.returncode == 128 + signal.SIGTERM, told
            assert "SIGTERM" in told.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_waits_in_c_ends_a_time_after_the_signal(number: signal.Signals) -> None:
    process = started("-c", ENDS + IN_C)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    _, told = process.communicate(timeout=CHILD_SECONDS)
    assert process.returncode == 128 + number
    assert f"stopped by {number.name}" in told


def test_a_second_signal_ends_a_process_at_once() -> None:
    process = started("-c", ENDS + IN_C)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    sent = 0
    while process.poll() is None:
        process.send_signal(signal.SIGINT)  # the first one alone would wait for ever
        sent += 1
        SYSTEM.sleep(0.1)
    assert sent > 1
    assert process.returncode == 128 + signal.SIGINT
    assert "a second signal" in process.communicate()[1]


AFTER = """
import os, signal, time
from accel.cli.main import main
main(["--version"], standalone_mode=False)
for _ in range(3):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt as error:
        assert type(error) is KeyboardInterrupt
    time.sleep(0.6)
print("goes on", signal.set_wakeup_fd(-1), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""


def test_a_program_that_ran_a_command_and_goes_on_has_its_signals_back() -> None:
    process = started("-c", AFTER)
    written, told = process.communicate(timeout=CHILD_SECONDS)
    assert written.splitlines()[-1] == "goes on -1 True", told


def test_the_handlers_are_there_before_anything_else_is_loaded() -> None:
    loaded = "import sys; print(*sorted({'click', 'numpy', 'boto3', 'rich'} & set(sys.modules)))"
    process = started("-c", ENDS + loaded)
    assert process.communicate(timeout=CHILD_SECONDS)[0] == "\n"


def test_what_the_parent_ignores_stays_ignored() -> None:
    act = "import signal, os; [os.kill(os.getpid(), n) for n in (1, 2)]; print('goes on')"
    ignored = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2)]; "
    process = started("-c", ignored + ENDS + act)
    assert process.communicate(timeout=CHILD_SECONDS)[0] == "goes on\n"
