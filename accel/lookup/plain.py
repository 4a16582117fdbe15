"""Knowing nothing: the lookup as it was before there was an index, for the bypass switch and for comparison."""

from __future__ import annotations

from array import array

import numpy as np

from accel.image import NodeImage
from accel.lookup.known import Survey
from range_index import StreamView

EMPTY_VIEW = StreamView(array("q"), array("q"), array("q"), frozenset(), 0)


class PlainKnowledge:
    """Remembers nothing and excludes nothing. Threads: any."""

    def view(self, node_id: int, stream_id: int) -> StreamView:  # noqa: ARG002 - the protocol's arguments
        """No entries."""
        return EMPTY_VIEW

    def is_ordered(self, node: NodeImage, stream_id: int, view: StreamView) -> bool:  # noqa: ARG002 - likewise
        """Nothing is in order."""
        return True

    def survey(self, node: NodeImage, stream_id: int) -> Survey:  # noqa: ARG002 - likewise
        """Nothing is known of any object."""
        none = np.zeros(len(node), dtype=np.bool_)
        return Survey(EMPTY_VIEW, none, none)
