"""How the structures of this package say that one of their own invariants is broken."""

from __future__ import annotations


def require(holds: bool, invariant: str, *state: object) -> None:
    """Do nothing if the invariant holds.

    Unlike the statement ``assert`` it is there under ``python -O`` too: a check that was asked for is always made.

    Args:
        holds: whether it does.
        invariant: in words.
        state: what a person needs to see to find the cause.

    Raises:
        AssertionError: it does not hold.
    """
    if not holds:
        raise AssertionError(f"broken: {invariant}; state: {', '.join(map(repr, state))}")
