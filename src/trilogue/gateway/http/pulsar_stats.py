"""What is told of a topic in numbers: stats, partitioned-stats, internalStats, internal-info.

The names are Pulsar's. Counters count since the topic was made (messages) or what is kept (bytes);
rates are not measured and are 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from trilogue.broker.partition import Partition
from trilogue.broker.topic import Topic
from trilogue.gateway.http.incoming import Problem
from trilogue.gateway.http.pulsar_asked import Asked
from trilogue.gateway.http.pulsar_live import iso, producer_stats, producers
from trilogue.gateway.http.pulsar_messages import MessageId, last_row
from trilogue.gateway.pulsar.readers import ConsumerStats

RATES = {"msgRateOut": 0.0, "msgThroughputOut": 0.0}


async def stats(asked: Asked) -> object:
    """Numbers of one partition."""
    _, partition = asked.partition
    return partition_stats(asked, partition)


async def partitioned_stats(asked: Asked) -> object:
    """Numbers of a topic with numbered partitions, together and one by one."""
    topic = _partitioned(asked)
    each: dict[str, Any] = {}
    for name, partition in _named(asked, topic):
        each[name] = partition_stats(asked, partition)
        await asyncio.sleep(0)  # there may be thousands, and others have their turns meanwhile
    total = _sum(list(each.values()))
    total["metadata"] = {"partitions": len(topic.partitions), "deleted": False}
    total["partitions"] = each if asked.flag("perPartition", default=True) else {}
    return total


def _partitioned(asked: Asked) -> Topic:
    """The topic that is asked for, which must have numbered partitions."""
    topic = asked.topic
    if not topic.partitioned or asked.name.partition is not None:
        raise Problem(404, f"Partitioned Topic {asked.name} not found")
    return topic


def _named(asked: Asked, topic: Topic) -> Iterator[tuple[str, Partition]]:
    """The partitions of a topic with their names."""
    name = asked.name
    for index, partition in enumerate(topic.partitions):
        yield f"{name}-partition-{index}", partition


def partition_stats(asked: Asked, partition: Partition) -> dict[str, Any]:
    """Numbers of one partition."""
    log, policies = partition.log, partition.policies
    size = log.size_bytes
    subscriptions = _subscriptions(asked, partition, size)
    quota, age = policies.size_quota, policies.age_quota
    return {
        "msgRateIn": 0.0,
        "msgThroughputIn": 0.0,
        **RATES,
        "bytesInCounter": size,
        "msgInCounter": log.end_offset,
        "bytesOutCounter": sum(each["bytesOutCounter"] for each in subscriptions.values()),
        "msgOutCounter": sum(each["msgOutCounter"] for each in subscriptions.values()),
        "averageMsgSize": 0.0,
        "msgChunkPublished": False,
        "storageSize": size,
        "backlogSize": max((each["backlogSize"] for each in subscriptions.values()), default=0),
        "backlogQuotaLimitSize": -1 if quota is None else quota.limit_bytes,
        "backlogQuotaLimitTime": -1 if age is None else age.limit_s,
        "offloadedStorageSize": 0,
        "publishers": [producer_stats(each) for each in producers(asked.door, partition)],
        "waitingPublishers": _waiting(asked, partition),
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": "Enabled" if policies.deduplication else "Disabled",
        "nonContiguousDeletedMessagesRanges": sum(
            each["nonContiguousDeletedMessagesRanges"] for each in subscriptions.values()
        ),
        "compaction": {
            "lastCompactionRemovedEventCount": 0,
            "lastCompactionSucceedTimestamp": 0,
            "lastCompactionFailedTimestamp": 0,
            "lastCompactionDurationTimeInMills": 0,
        },
        "ownerBroker": asked.request.url.netloc,
    }


def _waiting(asked: Asked, partition: Partition) -> int:
    writers = asked.broker.writers.find(partition.partition_id)
    return 0 if writers is None else writers.waiting


def _subscriptions(asked: Asked, partition: Partition, size: int) -> dict[str, dict[str, Any]]:
    cursors = asked.broker.subscriptions.of(partition.partition_id)
    kept = max(1, partition.log.high_watermark - partition.log.start_offset)
    found: dict[str, dict[str, Any]] = {}
    for each in asked.door.readers.stats(partition):
        cursor = cursors.get(each.name)
        found[each.name] = one = {
            **RATES,
            "bytesOutCounter": each.bytes_out,
            "msgOutCounter": each.messages_out,
            "msgRateRedeliver": 0.0,
            "messageAckRate": 0.0,
            "msgBacklog": each.backlog,
            "msgBacklogNoDelayed": each.backlog - each.delayed,
            "backlogSize": size * each.backlog // kept,
            "blockedSubscriptionOnUnackedMsgs": each.blocked_on_unacked,
            "msgDelayed": each.delayed,
            "unackedMessages": each.unacked_messages,
            "type": each.type or "None",
            "consumers": [_consumer(one) for one in each.consumers],
            "isDurable": each.durable,
            "durable": each.durable,
            "isReplicated": False,
            "replicated": False,
            "allowOutOfOrderDelivery": False,
            "nonContiguousDeletedMessagesRanges": 0 if cursor is None else cursor.acked.range_count,
            "subscriptionProperties": each.properties,
        }
        if each.active_consumer:
            one["activeConsumerName"] = each.active_consumer
    return found


def _consumer(each: ConsumerStats) -> dict[str, Any]:
    return {
        **RATES,
        "bytesOutCounter": each.bytes_out,
        "msgOutCounter": each.messages_out,
        "msgRateRedeliver": 0.0,
        "messageAckRate": 0.0,
        "consumerName": each.name,
        "availablePermits": each.available_permits,
        "unackedMessages": each.unacked_messages,
        "blockedConsumerOnUnackedMsgs": each.blocked_on_unacked,
        "address": each.address,
        "connectedSince": iso(each.connected_ms),
        "metadata": each.metadata,
    }


def _sum(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up the numbers of partitions; of subscriptions those of one name."""
    total: dict[str, Any] = {"subscriptions": {}, "publishers": [], "replication": {}}
    for part in parts:
        for key, value in part.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                total[key] = total.get(key, 0) + value
        total["publishers"] += part["publishers"]
        for name, each in part["subscriptions"].items():
            known = total["subscriptions"].setdefault(name, {"consumers": []})
            for key, value in each.items():
                if isinstance(value, (bool, str, dict)):
                    known.setdefault(key, value)
                elif isinstance(value, (int, float)):
                    known[key] = known.get(key, 0) + value
            known["consumers"] += each["consumers"]
    return total


async def internal_stats(asked: Asked) -> object:
    """How a partition's messages lie, in the words of ledgers: it is one."""
    _, partition = asked.partition
    return await _internal(asked, partition)


async def partitioned_internal_stats(asked: Asked) -> object:
    """The same of all partitions of a topic."""
    topic = _partitioned(asked)
    each: dict[str, Any] = {}
    for name, partition in _named(asked, topic):
        each[name] = await _internal(asked, partition)
        await asyncio.sleep(0)
    return {"metadata": {"partitions": len(topic.partitions)}, "partitions": each}


async def backlog_size(asked: Asked) -> object:
    """Tell how many bytes there are from an entry on, by its share of the offsets."""
    _, partition = asked.partition
    said, log = asked.json(MessageId), partition.log
    first = said.entry_id if said.ledger_id == partition.partition_id else log.start_offset
    kept = max(1, log.high_watermark - log.start_offset)
    behind = max(0, log.high_watermark - max(first, log.start_offset))
    return log.size_bytes * behind // kept


async def _internal(asked: Asked, partition: Partition) -> dict[str, Any]:
    log, ledger = partition.log, partition.partition_id
    last = await last_row(asked, partition)
    last_entry = -1 if last is None else last.base
    cursors = asked.broker.subscriptions.of(ledger)
    return {
        "entriesAddedCounter": log.end_offset,
        "numberOfEntries": log.high_watermark - log.start_offset,
        "totalSize": log.size_bytes,
        "currentLedgerEntries": log.high_watermark - log.start_offset,
        "currentLedgerSize": log.size_bytes,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": log.end_offset - log.high_watermark,
        "lastConfirmedEntry": f"{ledger}:{last_entry}",
        "state": "Terminated" if partition.terminated else "LedgerOpened",
        "ledgers": [
            {"ledgerId": ledger, "entries": 0, "size": 0, "offloaded": False,
             "underReplicated": False}
        ],
        "cursors": {
            name: {
                "markDeletePosition": f"{ledger}:{cursor.acked.mark - 1}",
                "readPosition": f"{ledger}:{cursor.acked.mark}",
                "messagesConsumedCounter": cursor.acked.mark,
                "totalNonContiguousDeletedMessagesRange": cursor.acked.range_count,
                "individuallyDeletedMessages": _ranges(ledger, cursor.acked.ranges()[:100]),
                "properties": {},
            }
            for name, cursor in cursors.items()
        },
        "schemaLedgers": [],
        "compactedLedger": {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False,
                            "underReplicated": False},
    }  # fmt: skip


def _ranges(ledger: int, ranges: list[tuple[int, int]]) -> str:
    return "[" + ",".join(f"({ledger}:{a - 1}..{ledger}:{b - 1}]" for a, b in ranges) + "]"


def internal_info(asked: Asked) -> object:
    """What is kept of a partition: when it was made, its ledger, its subscriptions."""
    topic, partition = asked.partition
    ledger = partition.partition_id
    cursors = asked.broker.subscriptions.of(ledger)
    return {
        "version": topic.row.epoch,
        "creationDate": iso(topic.row.created_ms),
        "modificationDate": iso(topic.row.created_ms),
        "ledgers": [{"ledgerId": ledger, "timestamp": topic.row.created_ms, "isOffloaded": False}],
        "cursors": {
            name: {
                "creationDate": iso(cursor.made_ms),
                "markDelete": {"ledgerId": ledger, "entryId": cursor.acked.mark - 1},
            }
            for name, cursor in cursors.items()
        },
    }
