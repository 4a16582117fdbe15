"""Which objects to open next: policies over plain positions and brackets. Pure: no I/O, no ids, no clock."""

from loaders.plan.bracket import Bracket, Near, Policy, Positions
from loaders.plan.policies import POLICY_NAMES, LoadAll, Spread, Window, WindowPreload, policy_of

__all__ = [
    "POLICY_NAMES",
    "Bracket",
    "LoadAll",
    "Near",
    "Policy",
    "Positions",
    "Spread",
    "Window",
    "WindowPreload",
    "policy_of",
]
