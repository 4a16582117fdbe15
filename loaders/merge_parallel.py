"""Runs a few calls at a time on an executor that others may use too."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, wait
from typing import TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


def map_bounded(
    executor: Executor, ask: Callable[[Asked], Answer], questions: Iterable[Asked], at_once_max: int
) -> list[Answer]:
    """Like `map`, with at most so many calls at once; answers come in the order of the questions.

    After the first error nothing more is asked; it is raised once what runs has ended, so that nothing goes on behind
    the caller's back.
    """
    running: deque[Future[Answer]] = deque()
    answers: list[Answer] = []
    try:
        for question in questions:
            if len(running) == at_once_max:
                answers.append(running.popleft().result())
            running.append(executor.submit(ask, question))
        while running:
            answers.append(running.popleft().result())
    finally:
        end_all(running)
    return answers


def end_all(futures: Iterable[Future[Answer]]) -> None:
    """Cancel what has not begun, and wait for the rest."""
    pending = list(futures)
    for future in pending:
        future.cancel()
    wait(pending)
