"""OffsetCommit v0-v10 and OffsetFetch v0-v10: committed offsets of a group.

Commit: v1 member and generation, a timestamp per partition · v2-v4 retention time · v6 leader
epochs · v7 static members · v8 flexible · v9 members of KIP-848 groups · v10 topic ids. Fetch: v2
null topics = all, the group's error · v5 leader epochs · v6 flexible · v7 require_stable (88
where an ongoing transaction may move a position) · v8 many groups · v9 members of KIP-848 groups ·
v10 topic ids. v0 meant ZooKeeper in old Kafka and is served like the others.

A commit is answered when it is synced and visible. An error of one partition does not affect the
others. A member of a KIP-848 group may commit at an older epoch for a partition that it has owned
since (KIP-1251). Each topic needs READ (commit) or DESCRIBE (fetch) besides the access to the
group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.cursors.committed_offsets import find_refusal
from trilogue.broker.errors import AccessDenied, BrokerError, InvalidName, UnknownTopic
from trilogue.broker.facts import DEFAULT_RETENTION, CursorMove, Protocol
from trilogue.broker.groups.consumer.mixed_group import MixedGroup
from trilogue.broker.groups.streams.group import StreamsGroup
from trilogue.broker.names import format_kafka
from trilogue.broker.promise import Promise
from trilogue.broker.topics.cluster import Cluster
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.context import HandlerResult, PromisedResponse, RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.steps import begin_steps
from trilogue.log.steps import Steps
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

IDS_SINCE = 10
EPOCHS_SINCE = 9  # members of consumer groups commit at their epoch
MANY_GROUPS_SINCE = 8
GROUP_ERROR_SINCE = 2
NO_OFFSET = -1
YIELD_EVERY = 1_000  # offsets per loop iteration
PARTITIONS_PER_STEP = 5_000  # partitions whose topic is looked up
NO_TIME = -1  # no timestamp from the client
TIMES_MAX = 100  # distinct timestamps per commit

PartitionCheck = Callable[[bytes, int], None]  # topic id, index; raises BrokerError
Moves = dict[int, list[CursorMove]]  # by commit timestamp


# ---- commit


def handle_offset_commit(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | PromisedResponse[None]:
    """Commit offsets of the group."""
    code = _group_code(context, request)
    check: PartitionCheck | None = None
    if code == ErrorCode.STALE_MEMBER_EPOCH:
        code, check = ErrorCode.NONE, _partition_check(context, request)
    moves: Moves = {}
    response = OffsetCommitResponse(
        topics=[_commit_topic(context, topic, code, check, moves) for topic in request.topics]
    )
    if not moves:
        return response
    try:
        for at_ms, some in _limit_timestamps(moves).items():
            promise = context.broker.commit(
                Protocol.KAFKA,
                request.group_id,
                some,
                at_ms=None if at_ms == NO_TIME else at_ms,
                retention_ms=max(request.retention_time_ms, DEFAULT_RETENTION),
            )
    except BrokerError as problem:
        return _set_error(response, to_error_code(problem))

    def respond(promise: Promise[None]) -> OffsetCommitResponse:
        if promise.error is None:
            return response
        return _set_error(response, to_error_code(promise.error))

    return PromisedResponse(promise, respond)


def _limit_timestamps(moves: Moves) -> Moves:
    """Merge a commit with too many distinct timestamps into its latest one, which expires last.

    Each timestamp is a fact of its own; 100,000 of them held the loop for more than a second.
    """
    if len(moves) <= TIMES_MAX:
        return moves
    at_ms = NO_TIME if NO_TIME in moves else max(moves)
    return {at_ms: [move for some in moves.values() for move in some]}


def _group_code(context: RequestContext, request: OffsetCommitRequest) -> ErrorCode:
    if refusal := context.group_refusal(request.group_id):
        return refusal
    epoch = request.generation_id_or_member_epoch
    group = context.broker.groups.find_group(request.group_id)
    if group is None and epoch >= 0 and context.version >= EPOCHS_SINCE:
        return ErrorCode.UNKNOWN_MEMBER_ID  # after a restart: the member joins again
    if (
        isinstance(group, MixedGroup | StreamsGroup)
        and context.version < EPOCHS_SINCE
        and group.has_epoch(request.member_id)
    ):
        return ErrorCode.UNSUPPORTED_VERSION
    try:
        context.broker.groups.check_commit(
            request.group_id, request.member_id, epoch, request.group_instance_id
        )
    except BrokerError as problem:
        return to_error_code(problem)
    return ErrorCode.NONE


def _partition_check(context: RequestContext, request: OffsetCommitRequest) -> PartitionCheck:
    """Return the check of a commit at an older epoch of its member (KIP-1251)."""
    group = context.broker.groups.find_group(request.group_id)
    assert isinstance(group, MixedGroup | StreamsGroup), "members of other groups have no epochs"
    epoch = request.generation_id_or_member_epoch
    return partial(group.check_partition_commit, request.member_id, epoch)


def _commit_topic(
    context: RequestContext,
    requested: OffsetCommitRequestTopic,
    code: ErrorCode,
    check: PartitionCheck | None,
    moves: Moves,
) -> OffsetCommitResponseTopic:
    topic: Topic | None = None
    if not code:
        try:
            topic = _find_topic(context, requested.name, requested.topic_id, Operation.READ)
        except InvalidName:  # no topic can have this name
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        except BrokerError as problem:
            code = to_error_code(problem)
    return OffsetCommitResponseTopic(
        name=requested.name,
        topic_id=requested.topic_id,
        partitions=[
            OffsetCommitResponsePartition(
                partition_index=each.partition_index,
                error_code=code if topic is None else _add_move(context, topic, each, check, moves),
            )
            for each in requested.partitions
        ],
    )


def _add_move(
    context: RequestContext,
    topic: Topic,
    requested: OffsetCommitRequestPartition,
    check: PartitionCheck | None,
    moves: Moves,
) -> ErrorCode:
    if not 0 <= requested.partition_index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if check is not None:
        try:
            check(topic.topic_id, requested.partition_index)
        except BrokerError as error:
            return to_error_code(error)
    move = CursorMove(
        topic.partitions[requested.partition_index].partition_id,
        requested.committed_offset,
        requested.committed_leader_epoch,
        requested.committed_metadata or "",
    )
    problem = find_refusal(context.broker.committed_offsets, move)
    if problem is not None:
        return to_error_code(problem)
    moves.setdefault(max(requested.commit_timestamp, NO_TIME), []).append(move)
    return ErrorCode.NONE


def _set_error(response: OffsetCommitResponse, code: ErrorCode) -> OffsetCommitResponse:
    for topic in response.topics:
        for partition in topic.partitions:
            partition.error_code = partition.error_code or code
    return response


# ---- fetch


class PartitionIndex:
    """The topic of each partition id; built at its first use in a request."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._found: dict[int, tuple[Topic, int]] | None = None

    def find_topics(self, partition_ids: Iterable[int]) -> Steps[dict[Topic, list[int]]]:
        """Return the topics of these partitions, with their partition indexes."""
        if self._found is None:
            self._found = yield from self._build()
        found: dict[Topic, list[int]] = {}
        for count, partition_id in enumerate(partition_ids, 1):
            if count % PARTITIONS_PER_STEP == 0:
                yield
            known = self._found.get(partition_id)
            if known is not None:
                found.setdefault(known[0], []).append(known[1])
        return found

    def _build(self) -> Steps[dict[int, tuple[Topic, int]]]:
        found: dict[int, tuple[Topic, int]] = {}
        left = PARTITIONS_PER_STEP
        for topic in list(self._cluster):
            for index, partition in enumerate(topic.partitions):
                found[partition.partition_id] = topic, index
            left -= 1 + len(topic.partitions)
            if left <= 0:
                left = PARTITIONS_PER_STEP
                yield
        return found


def handle_offset_fetch(context: RequestContext, request: OffsetFetchRequest) -> HandlerResult:
    """Return the committed offsets of one group, or of many; large results in steps."""
    if context.version >= MANY_GROUPS_SINCE:
        return begin_steps(_fetch_many(context, request.groups, stable=request.require_stable))
    return begin_steps(_fetch_one(context, request))


def _fetch_one(context: RequestContext, request: OffsetFetchRequest) -> Steps[OffsetFetchResponse]:
    topics = request.topics
    group = yield from _fetch_group(
        context,
        OffsetFetchRequestGroup(
            group_id=request.group_id,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
                for each in topics
            ],
        ),
        PartitionIndex(context.broker.cluster),
        stable=request.require_stable,
    )
    code = 0 if context.version >= GROUP_ERROR_SINCE else group.error_code
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=code or each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


def _fetch_many(
    context: RequestContext, requested: list[OffsetFetchRequestGroup], *, stable: bool
) -> Steps[OffsetFetchResponse]:
    """Return the offsets of many groups; all offsets of a group only once."""
    response = OffsetFetchResponse()
    index = PartitionIndex(context.broker.cluster)
    whole: set[str] = set()
    work = 0
    for each in requested:
        if each.topics is None:
            if each.group_id in whole:
                continue
            whole.add(each.group_id)
        group = yield from _fetch_group(context, each, index, stable=stable)
        response.groups.append(group)
        work += 1 + sum(len(topic.partitions) for topic in group.topics)
        if work >= YIELD_EVERY:
            work = 0
            yield
    return response


def _fetch_group(
    context: RequestContext,
    requested: OffsetFetchRequestGroup,
    index: PartitionIndex,
    *,
    stable: bool,
) -> Steps[OffsetFetchResponseGroup]:
    refusal = context.group_refusal(requested.group_id)
    denied = refusal == ErrorCode.GROUP_AUTHORIZATION_FAILED
    if refusal and not denied:
        return OffsetFetchResponseGroup(group_id=requested.group_id, error_code=refusal)
    if not denied:
        try:
            context.broker.groups.check_fetch(
                requested.group_id, requested.member_id, requested.member_epoch
            )
        except BrokerError as problem:
            return OffsetFetchResponseGroup(
                group_id=requested.group_id, error_code=to_error_code(problem)
            )
    found: list[OffsetFetchResponseTopics] = []
    topics: Iterator[OffsetFetchResponseTopics]
    if requested.topics is not None:
        topics = (
            _fetch_topic(context, requested.group_id, each, denied=denied)
            for each in requested.topics
        )
    elif denied:
        topics = iter(())
    else:
        ids = list(context.broker.committed_offsets.positions(Protocol.KAFKA, requested.group_id))
        theirs = (yield from index.find_topics(ids)) if ids else {}
        topics = _all_topics(context, requested.group_id, theirs)
    pending = context.broker.pending_positions(requested.group_id) if stable else set()
    work = 0
    for topic in topics:
        if pending:
            _mark_unstable(context, topic, pending)
        found.append(topic)
        work += 1 + len(topic.partitions)
        if work >= YIELD_EVERY:
            work = 0
            yield
    return OffsetFetchResponseGroup(
        group_id=requested.group_id,
        topics=found,
        error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED if denied else ErrorCode.NONE,
    )


def _mark_unstable(
    context: RequestContext, topic: OffsetFetchResponseTopics, pending: set[int]
) -> None:
    """Report positions that an ongoing transaction may still move as unstable (KIP-447)."""
    gateway = context.gateway
    try:
        known = (
            gateway.topic_by_id(topic.topic_id)
            if context.version >= IDS_SINCE
            else gateway.topic(topic.name)
        )
    except BrokerError:
        return
    for each in topic.partitions:
        index = each.partition_index
        if each.error_code or not 0 <= index < len(known.partitions):
            continue
        if known.partitions[index].partition_id in pending:
            each.committed_offset, each.metadata = NO_OFFSET, ""
            each.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT


def _all_topics(
    context: RequestContext, group: str, theirs: dict[Topic, list[int]]
) -> Iterator[OffsetFetchResponseTopics]:
    for topic, indexes in theirs.items():
        if context.can_see(Operation.DESCRIBE, ResourceKind.TOPIC, topic.name):
            yield OffsetFetchResponseTopics(
                name=format_kafka(topic.name),
                topic_id=topic.topic_id,
                partitions=[
                    _fetch_position(context, group, topic, index) for index in sorted(indexes)
                ],
            )


def _fetch_topic(
    context: RequestContext, group: str, requested: OffsetFetchRequestTopics, *, denied: bool
) -> OffsetFetchResponseTopics:
    """A missing topic has no offsets, which is no error; an unknown topic id is one."""
    topic: Topic | None = None
    code = ErrorCode.NONE
    if not denied:
        try:
            topic = _find_topic(context, requested.name, requested.topic_id, Operation.DESCRIBE)
        except (UnknownTopic, InvalidName):
            pass
        except BrokerError as problem:
            code = to_error_code(problem)
    return OffsetFetchResponseTopics(
        name=requested.name,
        topic_id=requested.topic_id,
        partitions=[
            _empty_position(index, code)
            if topic is None
            else _fetch_position(context, group, topic, index)
            for index in requested.partition_indexes
        ],
    )


def _fetch_position(
    context: RequestContext, group: str, topic: Topic, index: int
) -> OffsetFetchResponsePartitions:
    if not 0 <= index < len(topic.partitions):
        return _empty_position(index, ErrorCode.NONE)
    partition_id = topic.partitions[index].partition_id
    position = context.broker.committed_offsets.position(Protocol.KAFKA, group, partition_id)
    if position is None:
        return _empty_position(index, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=position.mark,
        committed_leader_epoch=position.owner_epoch,
        metadata=position.metadata,
    )


def _empty_position(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
    )


def _find_topic(context: RequestContext, name: str, topic_id: bytes, operation: Operation) -> Topic:
    if context.version < IDS_SINCE:
        return context.require_topic(operation, name)
    topic = context.gateway.topic_by_id(topic_id)
    if not context.is_allowed_to(operation, ResourceKind.TOPIC, topic.name):
        raise AccessDenied(operation, Resource(ResourceKind.TOPIC, str(topic.name)))
    return topic
