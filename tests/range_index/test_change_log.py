"""The log tells what happened since a revision, or that it forgot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from range_index import node_index
from range_index.node_index import ChangeLog

changes_made = st.lists(st.tuples(st.booleans(), st.integers(0, 2**63 - 1)), max_size=40)


@given(changes_made)
def test_the_log_tells_all_since_a_revision_or_that_it_forgot(made: list[tuple[bool, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_index, "REMEMBERED_MAX", 8)
        log = ChangeLog()
        for is_removal, object_id in made:
            if is_removal:
                log.removed(object_id)
            else:
                log.inserted(object_id)
            log.check()
        told = [~object_id if is_removal else object_id for is_removal, object_id in made]
        assert log.revision == len(told)
        for revision in range(len(told) + 1):
            since = log.since(revision)
            if since is None:
                assert len(told) - revision > 4, "it remembers at least half of what it may"
            else:
                assert since.tolist() == told[revision:]
