"""What meta makes a manifest of; the rules are the same in every store (test_port.py)."""

from __future__ import annotations

from tests.meta.samples import topic
from trilogue.log.segments.manifest import PartitionRange
from trilogue.meta.memory import MemoryMeta
from trilogue.meta.operations import AllocateIds, PutPartitionState, PutTopic


def test_a_partition_ends_where_a_transaction_is_open():
    meta = MemoryMeta()
    meta.write_now((AllocateIds("partition", 10),))
    meta.write_now((PutTopic(topic("orders", 1)),))

    opened = ((7, 5), (8, 6))
    meta.write_now((PutPartitionState(1, 3, 9, open_transactions=opened),))
    assert meta.manifest().partitions[1] == PartitionRange(3, 9, 5, open_transactions=opened)

    meta.write_now((PutPartitionState(1, 6),))  # retention takes the beginning of one
    assert meta.manifest().partitions[1] == PartitionRange(6, 9, 6, open_transactions=opened)

    meta.write_now((PutPartitionState(1, flushed_end=12, open_transactions=()),))
    assert meta.manifest().partitions[1] == PartitionRange(6, 12, 12)
