"""An S3 server in a separate process, with two ports to one store: a fast one, and one as slow as S3, which can fail.

Writers use the fast port. Measured processes use the slow port: each request takes the time that `LatencyModel` draws
(half of them 15 ms, one in a hundred 100 ms, 80 MB/s), in addition to the time of moto. The slow port fails as selected
by `SlowS3.turn`, for all requests until the next call:

    | weather  | a request                                                                                     |
    |----------|-----------------------------------------------------------------------------------------------|
    | FINE     | is answered with the latency of the model                                                     |
    | REFUSING | is answered with 503 SlowDown, with the latency of the model                                  |
    | SILENT   | is never answered, even after the weather is FINE again: the client's time-out ends it        |
    | SLOW     | takes `SLOW_SECONDS` more                                                                     |
"""

from __future__ import annotations

import multiprocessing
import random
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from accel.cli.embedded_s3 import embedded_s3
from accel.system import SYSTEM
from accel.testing import LatencyModel

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

SLOW_SECONDS: Final = 5.0
KEYS: Final = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_DEFAULT_REGION": "us-east-1"}
REFUSAL: Final = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>SlowDown</Code><Message>slow down</Message></Error>"
)


class Weather(IntEnum):
    """The kinds of failures of requests."""

    FINE = 0
    REFUSING = 1
    SILENT = 2
    SLOW = 3


class SlowS3(NamedTuple):
    """The ports, and the failures of the slow one.

    Args:
        quick: endpoint of writers.
        slow: endpoint of measured processes.
        weather: a value that both processes share.
    """

    quick: str
    slow: str
    weather: Any

    def turn(self, weather: Weather) -> None:
        """Set the kind of failures of requests to the slow port."""
        self.weather.value = weather


@contextmanager
def slow_s3(seed: int = 1) -> Iterator[SlowS3]:
    """Run the server for the time of the context; it accepts any credentials."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    weather = context.Value("i", Weather.FINE)
    process = context.Process(target=_serve, args=(there, weather, seed), daemon=True)
    process.start()
    try:
        quick, slow = here.recv()
        yield SlowS3(quick, slow, weather)
    finally:
        process.kill()  # it may hold requests that are never answered
        process.join()


def _serve(told: Connection, weather: Any, seed: int) -> None:
    with embedded_s3() as quick, embedded_s3(partial(_Slow, weather=weather, seed=seed)) as slow:
        told.send((quick, slow))
        threading.Event().wait()


class _Slow:
    """A WSGI application around another one. Threads: any."""

    def __init__(self, app: WSGIApplication, *, weather: Any, seed: int) -> None:
        self._app = app
        self._weather = weather
        self._model, self._rng = LatencyModel(), random.Random(seed)
        self._lock = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        weather = self._weather.value
        if weather == Weather.SILENT:
            threading.Event().wait()
        answer = [REFUSAL] if weather == Weather.REFUSING else list(self._app(environ, start_response))
        with self._lock:
            seconds = self._model.seconds(self._rng, sum(map(len, answer)))
        SYSTEM.sleep(seconds + SLOW_SECONDS * (weather == Weather.SLOW))
        if weather == Weather.REFUSING:
            start_response(
                "503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(REFUSAL)))]
            )
        return answer
