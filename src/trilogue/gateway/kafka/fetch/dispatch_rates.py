"""Records of a fetch, cut to what a topic's dispatch rate allows at once.

A partition over its rate has no records in a response, as if none had arrived; the other partitions
of the fetch go on. A response has as many batches as the rate allows now, and one at least; what
that is too much is waited for after it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, cast

from trilogue.gateway.stream import Buffer

if TYPE_CHECKING:
    from trilogue.gateway.kafka.context import RequestContext
    from trilogue.gateway.kafka.fetch.partitions import FetchPartition
    from trilogue.wire.kafka.fetch import PartitionData

# Message sets of old clients begin with the same three fields as record batches.
_SIZE_AT, _MAGIC_AT, _LAST_DELTA_AT = 8, 16, 23
_PREFIX_SIZE = 12  # base offset and size
_BATCH_MAGIC = 2
_INT32 = Struct(">i").unpack_from


def limit_records(
    context: RequestContext, sent: list[tuple[FetchPartition, PartitionData]]
) -> None:
    """Cut the records of partitions with a rate, and count what is sent."""
    for target, data in sent:
        partition = target.partition
        if partition is None or partition.rates is None or not data.records:
            continue
        found = data.records if isinstance(data.records, list) else [data.records]
        records = cast("list[Buffer]", found)
        kept, messages, size = cut_records(records, context.dispatch_room(partition)[0])
        data.records = kept
        context.count_dispatched(partition, messages, size)


def cut_records(records: list[Buffer], messages_max: int) -> tuple[list[Buffer], int, int]:
    """Return the first batches, their messages and bytes; at least one, if there is any."""
    kept: list[Buffer] = []
    messages = size = 0
    for each in records:
        end = len(each)
        at = 0
        while at + _MAGIC_AT < end:
            length = _PREFIX_SIZE + _INT32(each, at + _SIZE_AT)[0]
            count = 1
            if each[at + _MAGIC_AT] == _BATCH_MAGIC:
                count += _INT32(each, at + _LAST_DELTA_AT)[0]
            if messages and messages + count > messages_max:
                kept.append(memoryview(each)[:at])
                return kept, messages, size + at
            messages += count
            at += length
        kept.append(each)
        size += end
    return kept, messages, size
