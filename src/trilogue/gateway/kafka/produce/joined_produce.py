"""Produce in transactions that another node coordinates.

The first batch of a transaction in a partition waits until the coordinator has confirmed it; the
connection accepts no other request meanwhile. Where that takes too long the connection is closed:
an error would be for this batch only, and those behind it could be appended before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trilogue.broker.errors import BrokerError
from trilogue.broker.node_requests import JoinTransaction
from trilogue.entry.entry import TRANSACTIONAL, EntryError
from trilogue.entry.kafka.record_batch import check_produced
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.stream import Close
from trilogue.gateway.transactions.joins import join_transaction
from trilogue.wire.kafka.produce import ProduceRequest, TopicProduceData

Joins = list[JoinTransaction]
Refusals = dict[int, BrokerError]  # by partition id


def find_joins(
    call: RequestContext,
    request: ProduceRequest,
    name: str,
    find_partition_ids: Callable[[TopicProduceData], dict[int, int]],
    *,
    adds: bool,
) -> Joins:
    """Return what the coordinator has to confirm before the batches of a request are appended."""
    joins: dict[int, JoinTransaction] = {}
    for topic_data in request.topic_data:
        partition_ids = find_partition_ids(topic_data)
        for data in topic_data.partition_data:
            partition_id, records = partition_ids.get(data.index), data.records
            if partition_id is None or not isinstance(records, memoryview) or not records:
                continue
            try:
                header = check_produced(records)
            except EntryError:
                continue  # the append refuses it, with the reason
            producer = header.producer_id, header.producer_epoch
            if not header.attributes & TRANSACTIONAL or call.broker.participant.is_confirmed(
                *producer, partition_id
            ):
                continue
            joins[partition_id] = JoinTransaction(name, *producer, partition_id, adds)
    return list(joins.values())


async def join_partitions(call: RequestContext, joins: Joins) -> Refusals:
    """Return the refusals of the coordinator; Close if it cannot be reached."""
    try:
        found = await asyncio.gather(*(join_transaction(call.gateway, each) for each in joins))
    except TimeoutError as error:
        raise Close("produce.coordinator_unreachable", problem=joins[0].transactional_id) from error
    return {
        each.part: refusal
        for each, refusal in zip(joins, found, strict=True)
        if refusal is not None and isinstance(each.part, int)
    }


def copy_records(request: ProduceRequest) -> None:
    """Give a request records of its own: those of the receive buffer are there for a moment."""
    for topic_data in request.topic_data:
        for data in topic_data.partition_data:
            if isinstance(data.records, memoryview):
                data.records = memoryview(bytes(data.records))
