"""StreamsGroupHeartbeat v0: membership of streams groups (KIP-1071).

The rules are in broker/groups/streams/group.py; this module translates. A contradictory request is
refused with 42, a topology with impossible topics with 130, in Kafka 4.3.1's order of checks. Each
topic of the topology needs DESCRIBE besides the group's READ. Internal topics that are missing are
created while the heartbeat is answered (internal_topics.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import BrokerError, InvalidName, InvalidTopology
from trilogue.broker.groups.reconciliation import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from trilogue.broker.groups.streams.members import (
    Endpoint,
    EndpointPartitions,
    GroupStatus,
    PartitionsOfTopic,
    StreamsHeartbeat,
    StreamsHeartbeatResponse,
)
from trilogue.broker.groups.streams.tasks import TaskRole, Tasks, tasks_of_role
from trilogue.broker.groups.streams.topology import InternalTopic, Subtopology, Topology
from trilogue.broker.names import TopicName, format_kafka, parse_kafka
from trilogue.gateway.kafka.context import PromisedResponse, RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.kafka.groups.heartbeat_response import respond_when_durable
from trilogue.gateway.kafka.groups.internal_topics import create_internal_topics
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.streams import (
    StreamsEndpoint,
    StreamsEndpointPartitions,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsKeyValue,
    StreamsStatus,
    StreamsSubtopology,
    StreamsTaskIds,
    StreamsTopicInfo,
    StreamsTopicPartitions,
    StreamsTopology,
)

STATUS_CODES = {
    GroupStatus.STALE_TOPOLOGY: 0,
    GroupStatus.MISSING_SOURCE_TOPICS: 1,
    GroupStatus.INCORRECTLY_PARTITIONED_TOPICS: 2,
    GroupStatus.MISSING_INTERNAL_TOPICS: 3,
    GroupStatus.SHUTDOWN_APPLICATION: 4,
    GroupStatus.ASSIGNMENT_DELAYED: 5,
}
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def handle_streams_group_heartbeat(
    context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse | PromisedResponse[StreamsHeartbeatResponse]:
    """Process a heartbeat; returns the member's epoch and tasks, once they are durable."""
    if code := context.group_refusal(request.group_id):
        return _error_response(code)
    try:
        topology = _read_topology(request.topology)
        if topology is not None and not all(
            context.is_allowed_to(Operation.DESCRIBE, ResourceKind.TOPIC, name)
            for name in topology.topics
        ):
            return _error_response(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        problem = _find_problem(request)
        if problem is not None:
            return _error_response(ErrorCode.INVALID_REQUEST, problem)
        _check_changelogs(topology)
        response = context.broker.streams_groups.heartbeat(
            _read_heartbeat(context, request, topology)
        )
    except BrokerError as refusal:
        return _error_response(to_error_code(refusal), str(refusal))
    detail = create_internal_topics(context, response.missing_topics)
    return respond_when_durable(
        context, response, lambda result: _heartbeat_response(result, detail), _error_response
    )


def _read_heartbeat(
    context: RequestContext, request: StreamsGroupHeartbeatRequest, topology: Topology | None
) -> StreamsHeartbeat:
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        group=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        rack=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topology=topology,
        owned=_read_owned(request),
        process_id=request.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tags=None if tags is None else tuple(sorted((each.key, each.value) for each in tags)),
        shutdown=request.shutdown_application,
        client_id=context.client_id or "",
        client_host=f"/{context.session.stream.peer[0]}",
        creator=context.creator,
    )


# ---- the request


def _find_problem(request: StreamsGroupHeartbeatRequest) -> str | None:
    """Return what is not supported or contradictory, as Kafka words it, or None."""
    return next(
        (
            problem
            for check in (_find_unsupported, _find_empty, _find_join_problem, _find_epoch_problem)
            for problem in check(request)
        ),
        None,
    )


def _find_unsupported(request: StreamsGroupHeartbeatRequest) -> Iterator[str]:
    if request.instance_id is not None:
        yield "Static membership is not yet supported."
    if request.task_offsets is not None:
        yield "TaskOffsets are not supported yet."
    if request.task_end_offsets is not None:
        yield "TaskEndOffsets are not supported yet."
    if request.warmup_tasks:
        yield "WarmupTasks are not supported yet."
    subtopologies = request.topology.subtopologies if request.topology is not None else []
    if any(each.source_topic_regex for each in subtopologies):
        yield "Regular expressions for source topics are not supported yet."


def _find_empty(request: StreamsGroupHeartbeatRequest) -> Iterator[str]:
    for name, value in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            yield f"{name} can't be empty."


def _find_join_problem(request: StreamsGroupHeartbeatRequest) -> Iterator[str]:
    if request.member_epoch != JOIN_EPOCH:
        return
    if request.rebalance_timeout_ms == -1:
        yield "RebalanceTimeoutMs must be provided in first request."
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            yield f"{name} must be empty when (re-)joining."
    if request.topology is None:
        yield "Topology must be non-null when (re-)joining."


def _find_epoch_problem(request: StreamsGroupHeartbeatRequest) -> Iterator[str]:
    epoch = request.member_epoch
    if epoch == STATIC_LEAVE_EPOCH:
        yield "InstanceId can't be null."
    elif epoch < STATIC_LEAVE_EPOCH:
        yield f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    absent = [
        tasks is None
        for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    ]
    if any(absent) and not all(absent):
        yield "If one task-type is non-null, all must be non-null."
    if epoch != JOIN_EPOCH and request.topology is not None:
        yield "Topology can only be provided when (re-)joining."


def _read_owned(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    if request.active_tasks is None:
        return None
    return {
        (role, each.subtopology_id): frozenset(each.partitions)
        for role, tasks in (
            (TaskRole.ACTIVE, request.active_tasks),
            (TaskRole.STANDBY, request.standby_tasks),
            (TaskRole.WARMUP, request.warmup_tasks),
        )
        for each in tasks or ()
        if each.partitions
    }


def _read_topology(topology: StreamsTopology | None) -> Topology | None:
    """Return the topology of a request; raises InvalidTopology."""
    if topology is None:
        return None
    spelled = dict.fromkeys(name for each in topology.subtopologies for name in _topics(each))
    internal = [name for name in spelled if name in INTERNAL_TOPICS]
    if internal:
        raise InvalidTopology(
            f"Use of Kafka internal topics {','.join(internal)}"
            " in a Kafka Streams topology is prohibited."
        )
    names, invalid = {}, []
    for each in spelled:
        try:
            names[each] = parse_kafka(each)
        except InvalidName:
            invalid.append(each)
    if invalid:
        raise InvalidTopology(f"Topic names {','.join(invalid)} are not valid topic names.")
    subtopologies = {
        each.subtopology_id: _read_subtopology(each, names) for each in topology.subtopologies
    }
    if len(subtopologies) < len(topology.subtopologies):
        raise InvalidTopology("The topology has two subtopologies of the same id.")
    return Topology(topology.epoch, tuple(subtopologies[each] for each in sorted(subtopologies)))


def _topics(each: StreamsSubtopology) -> Iterator[str]:
    yield from each.source_topics
    yield from each.repartition_sink_topics
    for topics in (each.repartition_source_topics, each.state_changelog_topics):
        for topic in topics:
            yield topic.name


def _read_subtopology(each: StreamsSubtopology, names: dict[str, TopicName]) -> Subtopology:
    try:
        copartition_groups = tuple(
            (
                *(names[each.source_topics[index]] for index in group.source_topics),
                *(
                    names[each.repartition_source_topics[index].name]
                    for index in group.repartition_source_topics
                ),
            )
            for group in each.copartition_groups
        )
    except IndexError as error:
        raise InvalidTopology("A copartition group names a topic that does not exist.") from error
    return Subtopology(
        each.subtopology_id,
        source_topics=tuple(names[name] for name in each.source_topics),
        repartition_sinks=tuple(names[name] for name in each.repartition_sink_topics),
        repartition_sources=_read_topics(each.repartition_source_topics, names),
        changelogs=_read_topics(each.state_changelog_topics, names),
        copartition_groups=copartition_groups,
    )


def _read_topics(
    topics: Iterable[StreamsTopicInfo], names: dict[str, TopicName]
) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(
            names[each.name],
            each.partitions,
            each.replication_factor,
            tuple((setting.key, setting.value) for setting in each.topic_configs),
        )
        for each in topics
    )


def _check_changelogs(topology: Topology | None) -> None:
    for sub in topology.subtopologies if topology is not None else ():
        for topic in sub.changelogs:
            if topic.partition_count:
                raise InvalidTopology(
                    f"Changelog topic {format_kafka(topic.name)} must have an undefined partition"
                    f" count, but it is set to {topic.partition_count}."
                )


# ---- the response


def _heartbeat_response(
    response: StreamsHeartbeatResponse, detail: str
) -> StreamsGroupHeartbeatResponse:
    active = standby = warmup = endpoints = None
    if response.assigned is not None:
        active, standby, warmup = task_ids_by_role(response.assigned)
    if response.endpoints is not None:
        endpoints = [_endpoint_partitions(each) for each in response.endpoints]
    return StreamsGroupHeartbeatResponse(
        member_id=response.member_id,
        member_epoch=response.epoch,
        heartbeat_interval_ms=response.heartbeat_interval_ms,
        status=[
            StreamsStatus(
                status_code=STATUS_CODES[status],
                status_detail=text
                + (detail if status is GroupStatus.MISSING_INTERNAL_TOPICS else ""),
            )
            for status, text in response.statuses
        ],
        active_tasks=active,
        standby_tasks=standby,
        warmup_tasks=warmup,
        endpoint_information_epoch=response.endpoint_epoch,
        partitions_by_user_endpoint=endpoints,
    )


def describe_topics(topics: Iterable[InternalTopic]) -> list[StreamsTopicInfo]:
    """Return internal topics as members describe them, by name."""
    found = [
        StreamsTopicInfo(
            name=format_kafka(each.name),
            partitions=each.partition_count,
            replication_factor=each.replication_factor,
            topic_configs=describe_pairs(each.settings),
        )
        for each in topics
    ]
    return sorted(found, key=lambda each: each.name)


def describe_endpoint(endpoint: Endpoint | None) -> StreamsEndpoint | None:
    """Return where a member serves its state to others."""
    return None if endpoint is None else StreamsEndpoint(host=endpoint.host, port=endpoint.port)


def describe_pairs(pairs: Iterable[tuple[str, str]]) -> list[StreamsKeyValue]:
    """Return settings or tags."""
    return [StreamsKeyValue(key=key, value=value) for key, value in pairs]


def task_ids_by_role(tasks: Tasks) -> Iterator[list[StreamsTaskIds]]:
    """Yield the active tasks, the standby and the warm-up ones, by subtopology."""
    for role in TaskRole:
        yield [
            StreamsTaskIds(subtopology_id=subtopology_id, partitions=sorted(numbers))
            for subtopology_id, numbers in sorted(tasks_of_role(tasks, role).items())
        ]


def _endpoint_partitions(each: EndpointPartitions) -> StreamsEndpointPartitions:
    return StreamsEndpointPartitions(
        user_endpoint=StreamsEndpoint(host=each.endpoint.host, port=each.endpoint.port),
        active_partitions=_topic_partitions(each.active),
        standby_partitions=_topic_partitions(each.standby),
    )


def _topic_partitions(topics: list[PartitionsOfTopic]) -> list[StreamsTopicPartitions]:
    return [
        StreamsTopicPartitions(topic=format_kafka(name), partitions=numbers)
        for name, numbers in topics
    ]


def _error_response(code: ErrorCode, text: str | None = None) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=code, error_message=text)
