"""Statistics of topics: stats, partitioned-stats, internalStats, internal-info.

The names are Pulsar's. Counters count since the topic was created (messages), or what is stored
(bytes); rates are not measured and are 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.http.pulsar.admin_request import AdminRequest
from trilogue.gateway.http.pulsar.messages import MessageId, last_visible_entry, parse_metadata
from trilogue.gateway.http.pulsar.topic_clients import find_producers, format_time, producer_stats
from trilogue.gateway.http.request_limits import HttpError
from trilogue.gateway.pulsar.subscriptions import ConsumerStats
from trilogue.gateway.steps import next_step

RATES = {"msgRateOut": 0.0, "msgThroughputOut": 0.0}


async def get_stats(request: AdminRequest) -> object:
    """Return the statistics of one partition."""
    topic, partition = request.partition
    return await _shown_stats(request, topic, partition)


async def get_partitioned_stats(request: AdminRequest) -> object:
    """Return the statistics of a partitioned topic, in total and by partition."""
    topic = _partitioned_topic(request)
    each: dict[str, Any] = {}
    for name, partition in _named_partitions(request, topic):
        each[name] = await _shown_stats(request, topic, partition)
        await next_step()
    total = add_up_stats(list(each.values()))
    total["metadata"] = {"partitions": len(topic.partitions), "deleted": False}
    total["topicCreationTimeStamp"] = topic.row.created_ms
    total["lastPublishTimestamp"] = max(one["lastPublishTimestamp"] for one in each.values())
    total["partitions"] = each if request.flag("perPartition", default=True) else {}
    return total


async def _shown_stats(request: AdminRequest, topic: Topic, partition: Partition) -> dict[str, Any]:
    """Return the statistics of one partition, without the parts that the request excludes."""
    found = partition_stats(request, partition)
    found["topicCreationTimeStamp"] = topic.row.created_ms
    last = await last_visible_entry(request, partition)
    found["lastPublishTimestamp"] = 0 if last is None else parse_metadata(last).publish_time
    if request.flag("excludePublishers"):
        found["publishers"] = []
    if request.flag("excludeConsumers"):
        for each in found["subscriptions"].values():
            each["consumers"] = []
    return found


def _partitioned_topic(request: AdminRequest) -> Topic:
    """Return the topic of the path, which must be partitioned."""
    topic = request.topic
    if not topic.partitioned or request.name.partition is not None:
        raise HttpError(404, f"Partitioned Topic {request.name} not found")
    return topic


def _named_partitions(request: AdminRequest, topic: Topic) -> Iterator[tuple[str, Partition]]:
    """Return the partitions of a topic with their names."""
    name = request.name
    for index, partition in enumerate(topic.partitions):
        yield f"{name}-partition-{index}", partition


def partition_stats(request: AdminRequest, partition: Partition) -> dict[str, Any]:
    """Return the statistics of one partition."""
    log, policies = partition.log, partition.policies
    size = log.size_bytes
    subscriptions = _subscriptions(request, partition, size)
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
        "publishers": [producer_stats(each) for each in find_producers(request.gateway, partition)],
        "publishRateLimitedTimes": _limited_publishes(partition),
        "waitingPublishers": _waiting_publishers(request, partition),
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": "Enabled" if policies.deduplication else "Disabled",
        "nonContiguousDeletedMessagesRanges": sum(
            each["nonContiguousDeletedMessagesRanges"] for each in subscriptions.values()
        ),
        "compaction": _compaction(request, partition),
        "ownerBroker": request.http.url.netloc,
    }


def _compaction(request: AdminRequest, partition: Partition) -> dict[str, int]:
    last = request.gateway.compaction.last_compaction(partition.partition_id)
    return {
        "lastCompactionRemovedEventCount": last.removed_count,
        "lastCompactionSucceedTimestamp": last.succeeded_ms,
        "lastCompactionFailedTimestamp": last.failed_ms,
        "lastCompactionDurationTimeInMills": last.duration_ms,
    }


def _limited_publishes(partition: Partition) -> int:
    rates = partition.rates
    return 0 if rates is None or rates.publish is None else rates.publish.waits


def _waiting_publishers(request: AdminRequest, partition: Partition) -> int:
    writers = request.broker.writers.get(partition.partition_id)
    return 0 if writers is None else writers.waiting


def _subscriptions(
    request: AdminRequest, partition: Partition, size: int
) -> dict[str, dict[str, Any]]:
    cursors = request.broker.subscriptions.of_partition(partition.partition_id)
    kept = max(1, partition.log.high_watermark - partition.log.start_offset)
    found: dict[str, dict[str, Any]] = {}
    for each in request.gateway.subscriptions.stats(partition):
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
            "totalMsgExpired": each.expired,
            "msgRateExpired": 0.0,
            "unackedMessages": each.unacked_messages,
            "type": each.type or "None",
            "consumers": [_consumer_stats(one) for one in each.consumers],
            "isDurable": each.durable,
            "durable": each.durable,
            "isReplicated": False,
            "replicated": False,
            "allowOutOfOrderDelivery": False,
            "consumersAfterMarkDeletePosition": {},
            "nonContiguousDeletedMessagesRanges": 0 if cursor is None else cursor.range_count,
            "subscriptionProperties": each.properties,
        }
        if each.active_consumer:
            one["activeConsumerName"] = each.active_consumer
    return found


def _consumer_stats(each: ConsumerStats) -> dict[str, Any]:
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
        "connectedSince": format_time(each.connected_ms),
        "clientVersion": each.client_version,
        "lastConsumedFlowTimestamp": each.last_flow_ms,
        "avgMessagesPerEntry": each.messages_per_entry,
        "chunkedMessageRate": 0.0,
        "metadata": each.metadata,
    }


def add_up_stats(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the sum of partitions' statistics; of subscriptions by name."""
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


async def get_internal_stats(request: AdminRequest) -> object:
    """Return the positions of a partition, as one ledger."""
    _, partition = request.partition
    return await _internal_stats(request, partition)


async def get_partitioned_internal_stats(request: AdminRequest) -> object:
    """Return the same of all partitions of a topic."""
    topic = _partitioned_topic(request)
    each: dict[str, Any] = {}
    for name, partition in _named_partitions(request, topic):
        each[name] = await _internal_stats(request, partition)
        await next_step()
    return {"metadata": {"partitions": len(topic.partitions)}, "partitions": each}


async def get_backlog_size(request: AdminRequest) -> object:
    """Return about how many bytes there are from an entry on."""
    _, partition = request.partition
    message_id, log = request.json(MessageId), partition.log
    first = (
        message_id.entry_id if message_id.ledger_id == partition.partition_id else log.start_offset
    )
    kept = max(1, log.high_watermark - log.start_offset)
    behind = max(0, log.high_watermark - max(first, log.start_offset))
    return log.size_bytes * behind // kept


async def _internal_stats(request: AdminRequest, partition: Partition) -> dict[str, Any]:
    log, ledger = partition.log, partition.partition_id
    last = await last_visible_entry(request, partition)
    last_entry = -1 if last is None else last.base
    cursors = request.broker.subscriptions.of_partition(ledger)
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
                "markDeletePosition": f"{ledger}:{cursor.mark - 1}",
                "readPosition": f"{ledger}:{cursor.mark}",
                "messagesConsumedCounter": cursor.mark,
                "totalNonContiguousDeletedMessagesRange": cursor.range_count,
                "individuallyDeletedMessages": _ranges(ledger, cursor.ranges()[:100]),
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


def get_internal_info(request: AdminRequest) -> object:
    """Return the creation time, the ledger and the subscriptions of a partition."""
    topic, partition = request.partition
    ledger = partition.partition_id
    cursors = request.broker.subscriptions.of_partition(ledger)
    return {
        "version": topic.row.epoch,
        "creationDate": format_time(topic.row.created_ms),
        "modificationDate": format_time(topic.row.created_ms),
        "ledgers": [{"ledgerId": ledger, "timestamp": topic.row.created_ms, "isOffloaded": False}],
        "cursors": {
            name: {
                "creationDate": format_time(cursor.created_ms),
                "markDelete": {"ledgerId": ledger, "entryId": cursor.mark - 1},
            }
            for name, cursor in cursors.items()
        },
    }
