"""Filters over stream ids: which objects certainly do not hold a stream. Pure: no I/O, no clock, no randomness.

A StreamFilter is built from one object's ids; pybloom_live can read its stored bytes. A FilterMatrix contains the
filters of a node's objects, and tests one stream against all of them at once; a FilterStore keeps the matrices of many
nodes within a limit of bytes. With a PieceCache an id is hashed once for all objects that hold it. A StreamSketch is a
less accurate filter of 15 bytes, for a list that is read anyway.

>>> import numpy as np
>>> from bloom import FilterMatrix, StreamFilter
>>> matrix = FilterMatrix()
>>> matrix.add(object_id=7, stream_filter=StreamFilter.build(np.array([233, 420000])))
>>> matrix.add(object_id=9, stream_filter=StreamFilter.build(np.array([233, 500000])))
>>> matrix.absent(stream_id=420000).tolist()
[9]
"""

from __future__ import annotations

from bloom.filter_matrix import FilterMatrix
from bloom.filter_store import FilterStore
from bloom.geometry import (
    CAPACITY_CLASSES,
    CAPACITY_MAX,
    ERROR_RATE,
    NARROW_CAPACITY_MAX,
    Geometry,
    PieceCache,
    class_for,
    hash_id,
    hash_ids,
)
from bloom.stream_filter import StreamFilter
from bloom.stream_sketch import SketchColumns, StreamSketch

__all__ = [
    "CAPACITY_CLASSES",
    "CAPACITY_MAX",
    "ERROR_RATE",
    "NARROW_CAPACITY_MAX",
    "FilterMatrix",
    "FilterStore",
    "Geometry",
    "PieceCache",
    "SketchColumns",
    "StreamFilter",
    "StreamSketch",
    "class_for",
    "hash_id",
    "hash_ids",
]
