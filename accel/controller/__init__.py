"""For brokers that keep their metadata themselves, in a controller: its metadata as an image, and its compaction.

`automq` reads AutoMQ's metadata; `compaction` merges objects of an image, and hands each result to the controller, who
commits it. Nothing here writes a table, and nothing is ever deleted. An example: docs/brokers.md, "A controller
of your own".
"""

from __future__ import annotations

from accel.controller.automq import ControllerMetadata, read_automq
from accel.controller.compaction import (
    ControllerReport,
    Swap,
    SwapRefused,
    SwapResult,
    SwapStatus,
    apply_to_image,
    compact_for_controller,
    plan_for_controller,
    swaps_from_json,
    swaps_to_json,
)

__all__ = [
    "ControllerMetadata",
    "ControllerReport",
    "Swap",
    "SwapRefused",
    "SwapResult",
    "SwapStatus",
    "apply_to_image",
    "compact_for_controller",
    "plan_for_controller",
    "read_automq",
    "swaps_from_json",
    "swaps_to_json",
]
