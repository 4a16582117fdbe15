"""Order across segments: the clock, time indexes in memory and in objects, and which segment is read next."""
