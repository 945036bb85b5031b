"""The acknowledgements in a ShareFetch or a ShareAcknowledge: checked, and applied.

Each partition has its own result: 42 for batches that contradict themselves, 121 where a record is
not acquired by the member; then nothing of this partition is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple
from typing import Protocol as Port

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import BrokerError, InvalidRequest
from trilogue.broker.groups.share.partition import Acknowledgement, AcknowledgeType
from trilogue.broker.topics.partition import Partition
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.kafka.share.sessions import ShareSessionKey, TopicPartitionKey
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.share.fetch import AcknowledgementBatch


class AcknowledgementResult(NamedTuple):
    """The error code and message of one partition."""

    code: ErrorCode = ErrorCode.NONE
    text: str | None = None


class AcknowledgedPartition(Port):
    """A partition in a request, with its acknowledgements."""

    partition_index: int
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgedTopic(Port):
    """A topic in a request."""

    topic_id: bytes

    @property
    def partitions(self) -> Sequence[AcknowledgedPartition]:
        """Its partitions."""


def find_partition(
    context: RequestContext, key: TopicPartitionKey
) -> tuple[Partition | None, ErrorCode]:
    """Return a partition that the client may read, or None and the error code."""
    try:
        topic = context.gateway.topic_by_id(key.topic_id)
    except BrokerError as problem:
        return None, to_error_code(problem)
    if not context.is_allowed_to(Operation.READ, ResourceKind.TOPIC, topic.name):
        return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not 0 <= key.partition < len(topic.partitions) or topic.partitions[key.partition].deleted:
        return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = topic.partitions[key.partition]
    if partition.is_remote:
        return None, ErrorCode.NOT_LEADER_OR_FOLLOWER
    return partition, ErrorCode.NONE


def apply_acknowledgements(
    context: RequestContext,
    key: ShareSessionKey,
    topics: Iterable[AcknowledgedTopic],
    *,
    may_renew: bool,
) -> dict[TopicPartitionKey, AcknowledgementResult]:
    """Apply what a request acknowledges; returns a result for each partition that it names so."""
    results: dict[TopicPartitionKey, AcknowledgementResult] = {}
    for topic in topics:
        for each in topic.partitions:
            if each.acknowledgement_batches:
                partition_key = TopicPartitionKey(topic.topic_id, each.partition_index)
                results[partition_key] = _apply(
                    context, key, partition_key, each.acknowledgement_batches, may_renew=may_renew
                )
    return results


def _apply(
    context: RequestContext,
    key: ShareSessionKey,
    partition_key: TopicPartitionKey,
    batches: list[AcknowledgementBatch],
    *,
    may_renew: bool,
) -> AcknowledgementResult:
    partition, code = find_partition(context, partition_key)
    if partition is None:
        return AcknowledgementResult(code)
    share = context.broker.share_partitions.find_partition(key.group, partition.partition_id)
    if share is None:
        return AcknowledgementResult(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the group has not read the partition"
        )
    try:
        given = _parse(batches, may_renew=may_renew)
        share.acknowledge(key.member_id, given)
    except BrokerError as problem:
        return AcknowledgementResult(to_error_code(problem), str(problem))
    return AcknowledgementResult()


def _parse(batches: list[AcknowledgementBatch], *, may_renew: bool) -> list[Acknowledgement]:
    """Return runs of offsets with one type each; raises InvalidRequest."""
    given: list[Acknowledgement] = []
    before = -1
    for batch in batches:
        first, end, types = batch.first_offset, batch.last_offset + 1, batch.acknowledge_types
        if not before < first < end:
            raise InvalidRequest(f"offsets {first} to {end - 1} do not follow {before}")
        before = end - 1
        if len(types) not in {1, end - first}:
            raise InvalidRequest(f"{len(types)} types for {end - first} offsets")
        if any(not 0 <= each <= AcknowledgeType.RENEW for each in types):
            raise InvalidRequest("an unknown type of acknowledgement")
        if AcknowledgeType.RENEW in types and not may_renew:
            raise InvalidRequest("this request may not renew acquisition locks")
        if len(types) == 1:
            given.append(Acknowledgement(first, end, AcknowledgeType(types[0])))
            continue
        for kind, run in groupby(types):
            stop = first + len(list(run))
            given.append(Acknowledgement(first, stop, AcknowledgeType(kind)))
            first = stop
    return given
