"""Packed extents equal the objects they were made from, and refuse invalid data."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from trilogue.log.segments.extents import EMPTY, EXTENT_FIELDS, MAGIC, Extent, Extents

numbers = st.integers(0, 2**63 - 1)
runs = st.builds(Extent, *[numbers] * 7, *[st.integers(-1, 2**63 - 1)] * 4)
unlike = st.lists(runs, max_size=20, unique_by=lambda each: each.partition_id)


@given(unlike, numbers)
def test_packed_extents_are_a_mapping_of_what_went_in(many: list[Extent], other: int) -> None:
    expected = {each.partition_id: each for each in many}
    packed = Extents.of(many)

    assert packed == expected
    assert list(packed) == sorted(expected)
    assert len(packed) == len(expected)
    assert packed.find_extent(other) == expected.get(other)
    assert (other in packed) == (other in expected)
    for name in EXTENT_FIELDS:
        column = [getattr(expected[each], name) for each in sorted(expected)]
        assert packed.column(name).tolist() == column
    assert Extents.of(Extent(*row) for row in packed.rows()) == packed


@given(unlike)
def test_they_come_back_from_bytes_and_from_a_pipe(many: list[Extent]) -> None:
    packed = Extents.of(many)

    assert Extents.from_bytes(packed.to_bytes()) == packed
    assert pickle.loads(pickle.dumps(packed)) == packed
    assert hash(packed) == hash(Extents.of(reversed(many)))


@given(unlike, st.data())
def test_some_can_be_left_out(many: list[Extent], data: st.DataObject) -> None:
    packed = Extents.of(many)
    gone = data.draw(st.sets(st.sampled_from([*packed, -5])))

    left = packed.without(gone)

    assert left == {each: extent for each, extent in packed.items() if each not in gone}
    assert packed.without(set(packed)) == EMPTY


ONE = Extent(7, *range(10))


@pytest.mark.parametrize(
    "many", [[ONE, ONE], [replace(ONE, size=1 << 63)], [replace(ONE, partition_id=-1)]]
)
def test_invalid_extents_raise_value_error(many: list[Extent]) -> None:
    with pytest.raises(ValueError, match=r"extent|partition"):
        Extents.of(many)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"EXT2",
        MAGIC + bytes(87),
        Extents.of([ONE]).to_bytes()[:-1],
        MAGIC + bytes(88 * 2),  # two of partition 0
    ],
)
def test_bytes_that_are_no_extents_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"extents|stands behind"):
        Extents.from_bytes(data)
