"""stdin, stdout and stderr of a command, in whatever state its parent leaves them.

| state                                     | what happens                                                           |
|-------------------------------------------|------------------------------------------------------------------------|
| a stream is closed (`2>&-`)               | it is /dev/null: no file that is opened later gets its number          |
| stderr cannot be written (a full disk)    | the text is lost, and the command goes on                              |
| stdout cannot be written                  | the work is completed, then the error is shown (`accel.rendering`)     |
| the reader of stdout has gone (`| head`)  | the same without an error; of a sequence of results no more is printed |
| LC_ALL, LC_CTYPE or LANG is C or POSIX,   | ASCII: characters of drawings are replaced by similar ones, others by  |
| or the encoding lacks a character         | escapes, as Python writes them                                         |
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import Final, TextIO

ASCII: Final = dict(zip("─│▕▏├└┘┴┐┌┬┤┼█▒░▶·", "-|||+++++++++#%.>.", strict=True)) | {"…": "..."}
"""What is printed in place of the characters that Accel's own texts contain."""

_HANDLER: Final = "accel-similar"


def _similar(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letter = error.object[error.start]
    return ASCII.get(letter) or letter.encode("ascii", "backslashreplace").decode("ascii"), error.start + 1


codecs.register_error(_HANDLER, _similar)


class _Unfailing(io.FileIO):
    """Drops what cannot be written."""

    def write(self, data: object, /) -> int:
        with suppress(OSError):
            super().write(data)  # type: ignore[arg-type]  # the buffer is that of the text stream
        return len(data)  # type: ignore[arg-type]  # likewise


def open_standard_streams() -> None:
    """Replace closed streams of this process, and let stderr never fail; before a file is opened."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - open as long as the process
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - likewise
    encoding = sys.stderr.encoding if sys.stderr else None
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Unfailing(2, "w", closefd=False)), encoding, line_buffering=True, write_through=True
    )


def print_what_can_be_shown(*streams: TextIO) -> None:
    """Let streams print every text, in ASCII if the user's locale says so."""
    named = filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG")))
    encoding = "ascii" if next(named, "") in {"C", "POSIX"} else None  # not set: UTF-8, as most terminals have it
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=encoding, errors=_HANDLER)


def leave_unwritten() -> None:
    """Drop what cannot be written to stdout, which a command has reported: Python would report it again at its end."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):  # no file of the system
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
