"""Rows go where Kafka's Java producer would send them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from trilogue.client.kafka.producer.hashes import murmur2
from trilogue.spark.partitioner import Partitioner


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_the_same_key_goes_to_the_same_partition():
    keys = pa.array([b"a", b"b", b"a", None, b"b"], pa.binary())

    numbers = Partitioner(7).assign(batch(key=keys)).to_pylist()

    assert numbers[0] == numbers[2] == murmur2(b"a") % 7
    assert numbers[1] == numbers[4]


def test_rows_without_a_key_stay_together_and_take_turns():
    partitioner = Partitioner(3)
    rows = batch(value=pa.array([b"x", b"y"], pa.binary()))

    turns = [set(partitioner.assign(rows).to_pylist()) for _ in range(3)]

    assert all(len(turn) == 1 for turn in turns)
    assert set.union(*turns) == {0, 1, 2}


def test_the_partition_column_wins_where_it_is_not_null():
    rows = batch(key=pa.array([b"a", b"a"]), partition=pa.array([5, None], pa.int32()))

    assert [5, (murmur2(b"a") & 0x7FFFFFFF) % 6] == Partitioner(6).assign(rows).to_pylist()


@pytest.mark.parametrize("number", [-1, 3])
def test_a_partition_that_does_not_exist_is_refused(number):
    with pytest.raises(ValueError, match=r"0\.\.2"):
        Partitioner(3).assign(batch(partition=pa.array([number], pa.int32())))


def test_rows_are_grouped_by_partition_in_their_order():
    numbers = pa.array([9, 2, 0, 2, 2, 0], pa.int32()).slice(1)

    groups = Partitioner(4).group(batch(partition=numbers))

    assert [(number, rows.cast("i").tolist()) for number, rows in groups] == [
        (0, [1, 4]),
        (2, [0, 2, 3]),
    ]
