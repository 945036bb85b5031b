"""The records of `__consumer_offsets` about groups with epochs, from the broker's groups.

Hashes of topics and times of assignments, which only Kafka's own coordinator uses, are 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from trilogue.broker.groups.consumer.assignors import NO_PARTITIONS, PartitionIndexes
from trilogue.broker.groups.consumer.group import ConsumerGroup
from trilogue.broker.groups.consumer.members import ConsumerGroupMember
from trilogue.broker.groups.group import CONSUMER, SHARE, STREAMS, Group
from trilogue.broker.groups.reconciliation import STATES, ReconcilingMember
from trilogue.broker.groups.share.group import ShareGroup
from trilogue.broker.groups.share.members import ShareGroupMember
from trilogue.broker.groups.streams.group import StreamsGroup
from trilogue.broker.groups.streams.members import StreamsGroupMember
from trilogue.broker.groups.streams.tasks import NO_TASKS, TaskRole, Tasks
from trilogue.broker.groups.streams.topology import Subtopology, Topology
from trilogue.broker.internal.records import KeyValue, SharedPartitions
from trilogue.broker.names import TopicName, format_kafka
from trilogue.gateway.kafka.groups.streams import (
    describe_endpoint,
    describe_pairs,
    describe_topics,
    task_ids_by_role,
)
from trilogue.wire.kafka.groups import group_records as wire
from trilogue.wire.kafka.groups.group_records import GroupRecordKind, encode_record_key
from trilogue.wire.kafka.groups.streams import (
    StreamsCopartitionGroup,
    StreamsSubtopology,
)

K = TypeVar("K")

GROUP_KINDS: Final = {
    CONSUMER: (GroupRecordKind.CONSUMER_TARGET_EPOCH, GroupRecordKind.CONSUMER_GROUP),
    SHARE: (
        GroupRecordKind.SHARE_TARGET_EPOCH,
        GroupRecordKind.SHARE_PARTITIONS,
        GroupRecordKind.SHARE_GROUP,
    ),
    STREAMS: (
        GroupRecordKind.STREAMS_TARGET_EPOCH,
        GroupRecordKind.STREAMS_TOPOLOGY,
        GroupRecordKind.STREAMS_GROUP,
    ),
}
MEMBER_KINDS: Final = {
    CONSUMER: (
        GroupRecordKind.CONSUMER_CURRENT,
        GroupRecordKind.CONSUMER_TARGET,
        GroupRecordKind.CONSUMER_MEMBER,
    ),
    SHARE: (
        GroupRecordKind.SHARE_CURRENT,
        GroupRecordKind.SHARE_TARGET,
        GroupRecordKind.SHARE_MEMBER,
    ),
    STREAMS: (
        GroupRecordKind.STREAMS_CURRENT,
        GroupRecordKind.STREAMS_TARGET,
        GroupRecordKind.STREAMS_MEMBER,
    ),
}

TARGETS: Final = (
    wire.ConsumerGroupTargetAssignmentMemberValue,
    wire.ShareGroupTargetAssignmentMemberValue,
    wire.StreamsGroupTargetAssignmentMemberValue,
)


def removed_group_records(name: str, type_: str) -> Iterator[KeyValue]:
    """Yield the records of the removal of a group without members."""
    for kind in GROUP_KINDS[type_]:
        yield encode_record_key(kind, name), None


def removed_member_records(name: str, type_: str, member_id: str) -> Iterator[KeyValue]:
    """Yield the records of the removal of a member."""
    for kind in MEMBER_KINDS[type_]:
        yield encode_record_key(kind, name, member_id), None


def group_state_records(group: Group, shared: SharedPartitions) -> Iterator[KeyValue]:
    """Yield the records of a group, without its members."""
    for value in _describe_group(group, shared):
        yield _record(value, group.name)
    if isinstance(group, StreamsGroup) and group.topology is None:
        yield encode_record_key(GroupRecordKind.STREAMS_TOPOLOGY, group.name), None


def member_records(group: Group, member_id: str) -> Iterable[KeyValue]:
    """Yield the records of a member, or of its removal where the group does not have it."""
    values = list(_describe_member(group, member_id))
    if not values:
        return removed_member_records(group.name, group.type, member_id)
    return [_record(value, group.name, member_id) for value in values]


def target_records(group: Group, member_id: str) -> Iterator[KeyValue]:
    """Yield the record of the target of a member that the group has."""
    for value in _describe_member(group, member_id):
        if isinstance(value, TARGETS):
            yield _record(value, group.name, member_id)


def _record(value: Any, group: str, member_id: str | None = None) -> KeyValue:
    kind = wire.KIND_OF_VALUE[type(value)]
    return encode_record_key(kind, group, member_id), wire.encode_record_value(value)


# -- groups


def _describe_group(group: Group, shared: SharedPartitions) -> Iterator[object]:
    if isinstance(group, ConsumerGroup):
        yield wire.ConsumerGroupMetadataValue(epoch=group.epoch)
        yield wire.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=group.target_epoch)
    elif isinstance(group, ShareGroup):
        yield wire.ShareGroupMetadataValue(epoch=group.epoch)
        yield wire.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=group.target_epoch)
        yield wire.ShareGroupStatePartitionMetadataValue(
            initialized_topics=[
                wire.SharedTopicPartitions(
                    topic_id=topic_id, topic_name=format_kafka(name), partitions=sorted(numbers)
                )
                for (topic_id, name), numbers in sorted(shared.items())
            ]
        )
    elif isinstance(group, StreamsGroup):
        yield wire.StreamsGroupMetadataValue(
            epoch=group.epoch,
            validated_topology_epoch=(
                group.topology.epoch if group.topology is not None and group.is_ready else -1
            ),
            last_assignment_configs=[
                wire.LastAssignmentConfig(
                    key="num.standby.replicas", value=str(group.standby_replicas)
                )
            ],
        )
        yield wire.StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=group.target_epoch)
        if group.topology is not None:
            yield _describe_topology(group.topology)


def _describe_topology(topology: Topology) -> wire.StreamsGroupTopologyValue:
    return wire.StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[_describe_subtopology(each) for each in topology.subtopologies],
    )


def _describe_subtopology(each: Subtopology) -> StreamsSubtopology:
    sources = sorted(map(format_kafka, each.source_topics))
    repartitioned = describe_topics(each.repartition_sources)
    repartition_names = [topic.name for topic in repartitioned]
    return StreamsSubtopology(
        subtopology_id=each.subtopology_id,
        source_topics=sources,
        state_changelog_topics=describe_topics(each.changelogs),
        repartition_sink_topics=sorted(map(format_kafka, each.repartition_sinks)),
        repartition_source_topics=repartitioned,
        copartition_groups=[
            StreamsCopartitionGroup(
                source_topics=_find_indexes(sources, group),
                repartition_source_topics=_find_indexes(repartition_names, group),
            )
            for group in each.copartition_groups
        ],
    )


def _find_indexes(names: list[str], group: Iterable[TopicName]) -> list[int]:
    """Return where the topics of a group are among names."""
    places = {name: place for place, name in enumerate(names)}
    return sorted(places[name] for name in map(format_kafka, group) if name in places)


# -- members


def _describe_member(group: Group, member_id: str) -> Iterator[object]:
    if isinstance(group, ConsumerGroup):
        consumer = group.members.find_member(member_id)
        if consumer is not None:
            yield from _describe_consumer(consumer, group.target.get(member_id, NO_PARTITIONS))
    elif isinstance(group, ShareGroup):
        sharer = group.find_member(member_id)
        if sharer is not None:
            yield from _describe_sharer(sharer, group.target.get(member_id, NO_PARTITIONS))
    elif isinstance(group, StreamsGroup):
        streamer = group.members.find_member(member_id)
        if streamer is not None:
            yield from _describe_streamer(streamer, group.target.get(member_id, NO_TASKS))


def _describe_consumer(member: ConsumerGroupMember, target: PartitionIndexes) -> Iterator[object]:
    classic = member.classic
    yield wire.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(map(format_kafka, member.topics)),
        subscribed_topic_regex=member.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if classic is None
        else wire.StoredClassicMember(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                wire.ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in classic.protocols
            ],
        ),
    )
    yield wire.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=_partitions(target))
    yield wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=STATES.index(member.state),
        assigned_partitions=_owned_partitions(member, member.assigned),
        partitions_pending_revocation=_owned_partitions(member, member.revoking),
    )


def _describe_sharer(member: ShareGroupMember, target: PartitionIndexes) -> Iterator[object]:
    yield wire.ShareGroupMemberMetadataValue(
        rack_id=member.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(map(format_kafka, member.topics)),
    )
    yield wire.ShareGroupTargetAssignmentMemberValue(topic_partitions=_partitions(target))
    yield wire.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        assigned_partitions=_partitions(member.assigned),
    )


def _describe_streamer(member: StreamsGroupMember, target: Tasks) -> Iterator[object]:
    yield wire.StreamsGroupMemberMetadataValue(
        instance_id=None,
        rack_id=member.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=describe_endpoint(member.endpoint),
        client_tags=describe_pairs(member.tags),
    )
    active, standby, warmup = task_ids_by_role(target)
    yield wire.StreamsGroupTargetAssignmentMemberValue(
        active_tasks=active, standby_tasks=standby, warmup_tasks=warmup
    )
    has, gives_up = (
        [_owned_tasks(member, tasks, role) for role in TaskRole]
        for tasks in (member.assigned, member.revoking)
    )
    yield wire.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=STATES.index(member.state) + 1,  # Kafka counts these from 1
        active_tasks=has[0],
        standby_tasks=has[1],
        warmup_tasks=has[2],
        active_tasks_pending_revocation=gives_up[0],
        standby_tasks_pending_revocation=gives_up[1],
        warmup_tasks_pending_revocation=gives_up[2],
    )


def _partitions(parts: PartitionIndexes) -> list[wire.StoredTopicPartitions]:
    return [
        wire.StoredTopicPartitions(topic_id=topic_id, partitions=sorted(parts[topic_id]))
        for topic_id in sorted(parts)
    ]


def _owned_partitions(
    member: ConsumerGroupMember, parts: PartitionIndexes
) -> list[wire.OwnedTopicPartitions]:
    return [
        wire.OwnedTopicPartitions(
            topic_id=topic_id,
            partitions=sorted(parts[topic_id]),
            assignment_epochs=_assignment_epochs(member, topic_id, parts),
        )
        for topic_id in sorted(parts)
    ]


def _owned_tasks(
    member: StreamsGroupMember, tasks: Tasks, role: TaskRole
) -> list[wire.OwnedTaskIds]:
    return [
        wire.OwnedTaskIds(
            subtopology_id=key[1],
            partitions=sorted(numbers),
            assignment_epochs=(
                _assignment_epochs(member, key, tasks) if role is TaskRole.ACTIVE else None
            ),
        )
        for key, numbers in sorted(tasks.items(), key=lambda each: each[0][1])
        if key[0] is role
    ]


def _assignment_epochs(
    member: ReconcilingMember[K], key: K, parts: Mapping[K, frozenset[int]]
) -> list[int]:
    """Return the epochs at which a member got what it has of a key, in the order of the numbers."""
    since = {
        number: epoch for epoch, some in member.assignment_epochs for number in some.get(key, ())
    }
    return [since.get(number, member.epoch) for number in sorted(parts[key])]
