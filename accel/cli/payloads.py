"""Payloads as a terminal, or a program, can take them."""

from __future__ import annotations

import base64

import click

PAYLOAD_FORMS = click.Choice(["none", "text", "hex", "base64"])


def payload_text(payload: bytes, form: str) -> str | None:
    """A payload in one of the forms; None for no payload."""
    if form == "text":
        return payload.decode("utf-8", "backslashreplace")
    if form == "hex":
        return payload.hex()
    return base64.b64encode(payload).decode("ascii") if form == "base64" else None
