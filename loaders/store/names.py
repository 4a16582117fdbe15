"""Whether a name server answers for the host of an endpoint, before the first request goes there.

A resolver that gets no answer waits 5 s for each server that it knows, twice; it does so in C, where no signal reaches
it, and clients repeat that with each request: with five attempts a command says nothing for 50 s. So the name is first
asked for here, in a thread that the process does not wait for at its end:

    caller    check_name ──── waits 5 s ──── EndpointUnreachable, with the host
    thread    getaddrinfo ─────────────────────────────────── ends at some time

While that thread waits, further calls fail at once. Any answer will do, also that the name does not exist: what that
means is the client's affair. A host that was found once is not asked for again.
"""

from __future__ import annotations

import os
import socket
from concurrent.futures import Future, wait
from threading import Thread
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from loaders.errors import EndpointUnreachable
from loaders.store.settings import is_loopback

NAME_SECONDS: Final = 5.0
"""The time limit of the answer."""

_asked: dict[tuple[int, str], tuple[Future[object], list[str]]] = {}
"""By process and URL: the answer, if there is one by now, and whether a caller has waited for it in vain."""


def check_name(url: str) -> None:
    """Check that a name server answers for the host of a URL, or for that of the proxy on the way. Threads: any.

    Raises:
        EndpointUnreachable: none answered within 5 s.
    """
    mine: Future[object] = Future()
    answer, late = _asked.get((os.getpid(), url)) or _asked.setdefault((os.getpid(), url), (mine, []))
    if answer is mine:
        try:
            Thread(target=_ask, args=(url, mine), name="accel-name", daemon=True).start()
        except RuntimeError:  # no thread can be started: the client asks, then
            mine.set_result(None)
    if not answer.done() and (late or not wait([answer], NAME_SECONDS).done):
        late.append(url)
        host = asked_host(url)
        found = f"expected a name server to answer for {host} within {NAME_SECONDS:g} s, found none that does"
        raise EndpointUnreachable("resolve", host, f"{found}: check resolv.conf, and the network")


def _ask(url: str, answer: Future[object]) -> None:
    try:
        socket.getaddrinfo(asked_host(url), None)
    except (OSError, UnicodeError):
        _asked.pop((os.getpid(), url), None)  # it is asked for again
    finally:
        answer.set_result(None)


def asked_host(url: str) -> str:
    """The host whose address a request needs: that of the URL, or of the proxy that the environment names for it."""
    parts = urlsplit(url)
    proxy = "" if is_loopback(url) or proxy_bypass(parts.netloc) else getproxies().get(parts.scheme, "")
    return urlsplit(proxy if "//" in proxy else f"//{proxy}").hostname or parts.hostname or ""
