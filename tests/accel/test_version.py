"""Versions are compared as numbers or key by key, and are shown as one number where a machine reads them."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel import ReadAccelerator, StaticImages
from accel.errors import ImageRefused, InvalidRequest
from accel.image import ImageVersion, MetadataImage, VersionVector, is_newer, version_number
from tests.accel.lookup.cluster import STREAM, line_image, line_store, system

vectors = st.builds(VersionVector, st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3)))


def vector(**sequences: int) -> VersionVector:
    return VersionVector(sequences)


def versioned(version: ImageVersion, *objects: int) -> MetadataImage:
    """The one stream on the one node, with a version of any kind."""
    plain = line_image(list(objects))
    return MetadataImage(version, plain.namespace, plain.streams, plain.nodes)


def test_numbers_compare_as_numbers() -> None:
    assert is_newer(2, 1)
    assert not is_newer(1, 1)
    assert not is_newer(1, 2)


@given(vectors, vectors)
def test_a_vector_is_newer_if_it_is_behind_in_nothing_and_ahead_in_something(
    one: VersionVector, two: VersionVector
) -> None:
    pairs = [(one.get(key, 0), two.get(key, 0)) for key in "abcd"]
    assert is_newer(one, two) == (all(a >= b for a, b in pairs) and any(a > b for a, b in pairs))
    assert not (is_newer(one, two) and is_newer(two, one))
    assert one.total > two.total or not is_newer(one, two)


@given(vectors, vectors, vectors)
def test_newer_than_newer_is_newer(one: VersionVector, two: VersionVector, three: VersionVector) -> None:
    assert is_newer(one, three) or not (is_newer(one, two) and is_newer(two, three))


@given(vectors, vectors)
def test_vectors_are_equal_if_their_sequences_are(one: VersionVector, two: VersionVector) -> None:
    assert (one == two) == (dict(one) == dict(two))
    assert one != two or hash(one) == hash(two)


def test_a_key_that_is_not_there_counts_as_zero() -> None:
    assert vector(a=1, b=0) == vector(a=1)
    assert is_newer(vector(a=1, b=1), vector(a=1))
    assert not is_newer(vector(a=1), vector(a=1, b=1))


def test_a_vector_is_a_mapping_that_nobody_changes() -> None:
    sequences = {"a": 3, "b": 4}
    found = VersionVector(sequences)
    sequences["a"] = 9
    assert dict(found) == {"a": 3, "b": 4}
    assert (len(found), found.total, found["b"]) == (2, 7, 4)
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 - our own bytes
    assert found != {"a": 3, "b": 4}


def test_a_vector_reads_as_its_total() -> None:
    assert str(vector(a=3, b=4)) == "total 7 of 2 keys"
    assert str(vector(a=3)) == "total 3 of 1 key"
    assert repr(vector(a=3)) == "VersionVector({'a': 3})"
    assert (version_number(5), version_number(vector(a=3, b=4))) == (5, 7)


def test_a_negative_sequence_is_refused() -> None:
    with pytest.raises(ImageRefused, match="key 'a': expected a sequence of at least 0, found -1"):
        vector(a=-1)


@pytest.mark.parametrize(("version", "than"), [(1, vector(a=1)), (vector(a=1), 1)])
def test_a_number_and_a_vector_do_not_compare(version: ImageVersion, than: ImageVersion) -> None:
    with pytest.raises(ImageRefused, match="different sources"):
        is_newer(version, than)


def test_a_source_takes_only_what_is_newer_in_every_key() -> None:
    source = StaticImages(versioned(vector(a=1, b=1)))
    assert not source.push(versioned(vector(a=2)))
    assert source.push(versioned(vector(a=2, b=1)))
    assert source.wait_newer(vector(a=2, b=1), 0) is None
    assert source.wait_newer(vector(a=1, b=1), 0) is source.current()
    with pytest.raises(ImageRefused):
        source.push(versioned(9))


def test_an_accelerator_installs_only_what_is_newer_in_every_key() -> None:
    source = StaticImages(versioned(vector(a=1, b=1), 0, 1))
    with ReadAccelerator(source, line_store(3), system=system()) as one:
        assert not one.replace_image(versioned(vector(a=2), 0, 1, 2))
        assert one.replace_image(versioned(vector(a=2, b=1), 0, 1, 2))
        answer = one.get_objects(STREAM, 0, 30, 9)
        assert [each.object_id for each in answer.objects] == [0, 1, 2]
        assert answer.image_version == vector(a=2, b=1)
        with pytest.raises(ImageRefused):
            one.replace_image(versioned(9))


def test_where_json_is_written_a_vector_is_its_total() -> None:
    with ReadAccelerator(StaticImages(versioned(vector(a=2, b=1), 0)), line_store(1), system=system()) as one:
        told = one.explain(STREAM, 0)
        assert "image total 3 of 2 keys   policy spread" in told.text()
        assert json.loads(told.to_json())["image_versions"] == [3]
        assert json.loads(json.dumps(one.stats().to_dict()))["image_version"] == 3
        assert one.stats().image_version == vector(a=2, b=1)
        with pytest.raises(InvalidRequest, match="of image version total 3 of 2 keys"):
            one.get_objects(999, 0)


def test_a_later_generation_is_newer_whatever_its_sequences() -> None:
    first, second = "01760000000000-a", "01760000000001-0"
    before, after = VersionVector({"a": 9, "b": 9}, first), VersionVector({"a": 2}, second)
    assert is_newer(after, before)
    assert not is_newer(before, after)
    assert is_newer(VersionVector({}, first), VersionVector({"a": 1}))
    assert VersionVector({"a": 2}, first) != VersionVector({"a": 2}, second)
    assert pickle.loads(pickle.dumps(after)) == after  # noqa: S301 - our own bytes
    assert str(after) == "total 2 of 1 key in generation 01760000000001-0"
    assert repr(after) == "VersionVector({'a': 2}, '01760000000001-0')"
