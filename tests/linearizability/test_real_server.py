"""Four processes on a real server, killed and stopped, whose requests are lost, late and doubled: nothing contradicts.

Half a minute, for every run of `make test-s3`; `python -m tests.linearizability --seconds 1800` goes on for longer, and
`--planted NAME` shows that a mistake is found.
"""

from __future__ import annotations

import pytest

from tests.linearizability.runs import one_run
from tests.servers.fixtures import Endpoint

SECONDS = 25.0


@pytest.mark.timeout(240)
def test_what_four_processes_saw_could_have_happened_one_after_the_other(named_endpoint: Endpoint) -> None:
    ran = one_run(named_endpoint, 1, SECONDS)
    assert not ran.problems, "\n".join(ran.problems)
    happened = {each: ran.counts[each] for each in ("uploads", "operations on streams", "processes killed")}
    assert min(happened.values()) > 0, f"expected a run in which something happened, found {happened}"
