"""Requests for slots of a dead node that this node is to own: they wait until it serves them.

Metadata names the next owner while the slots are recovered (broker/topics/ownership.py), so clients
are here before the slots are. An error would cost them a look at the metadata, which librdkafka
takes once in a second; a request that waits is answered as soon as its slots are served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from trilogue.broker.errors import BrokerError
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.context import GatewayContext
from trilogue.gateway.steps import wait_until_settled
from trilogue.wire.kafka.codec.schema import ZERO_UUID

WAIT_S: Final = 5.0  # then the client is refused, and looks again
OF_PARTITIONS: Final = {  # API key -> the lists of topics and partitions, and their fields
    0: ("topic_data", "name", "partition_data", "index"),  # Produce
    1: ("topics", "topic", "partitions", "partition"),  # Fetch
    2: ("topics", "name", "partitions", "partition_index"),  # ListOffsets
    23: ("topics", "topic", "partitions", "partition"),  # OffsetForLeaderEpoch
}
OF_NAMES: Final = {  # API key -> the field with the name of a group or a transactional id
    **dict.fromkeys((8, 9, 11, 12, 13, 14, 28, 68), "group_id"),  # commits, positions, members
    **dict.fromkeys((22, 24, 25, 26), "transactional_id"),  # InitProducerId to EndTxn
}


def has_expected_slots(gateway: GatewayContext, key: int, request: object) -> bool:
    """Whether a request is for slots that this node is to own, and does not serve yet."""
    expects = gateway.broker.cluster.ownership.expects_slot
    return any(map(expects, _requested_slots(gateway, key, request)))


async def wait_for_slots(gateway: GatewayContext, key: int, request: object) -> None:
    """Return when a request is for such slots no more, or has waited for long enough."""
    try:
        async with asyncio.timeout(WAIT_S):
            while has_expected_slots(gateway, key, request):
                await wait_until_settled(gateway.broker.cluster.ownership.next_change)
    except TimeoutError:
        pass


def _requested_slots(gateway: GatewayContext, key: int, request: Any) -> Iterator[int]:
    """Return the slots of the partitions or of the name in a request; of unknown ones none."""
    ownership = gateway.broker.cluster.ownership
    if (field := OF_NAMES.get(key)) is not None:
        names = [getattr(request, field, None)]
        names += [each.group_id for each in getattr(request, "groups", None) or ()]
        yield from (ownership.slot_of(name) for name in names if name)
    elif (fields := OF_PARTITIONS.get(key)) is not None:
        topics, name, partitions, index = fields
        for each in getattr(request, topics):
            topic = _find_topic(gateway, each, name)
            for part in getattr(each, partitions) if topic is not None else ():
                number = getattr(part, index)
                if topic is not None and 0 <= number < len(topic.partitions):
                    yield ownership.partition_slot(topic.partitions[number].partition_id)


def _find_topic(gateway: GatewayContext, requested: Any, name: str) -> Topic | None:
    topic_id = getattr(requested, "topic_id", ZERO_UUID)
    try:
        if topic_id != ZERO_UUID:
            return gateway.topic_by_id(topic_id)
        return gateway.topic(getattr(requested, name))
    except BrokerError:
        return None
