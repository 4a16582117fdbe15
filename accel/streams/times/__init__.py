"""The time index of a segment: in memory, and in objects once it has moved there."""
