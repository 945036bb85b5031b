"""OffsetCommit v0-v10 and OffsetFetch v0-v10: the positions of a group.

Commit: v1 member and generation, and for each partition when it was · v2-v4 for how long it is to
be kept · v6 leader epochs · v7 static members · v8 flexible · v9 members of KIP-848 groups · v10
topics by id. Fetch: v2 null topics = all, the group's error · v5 leader epochs · v6 flexible · v7
require_stable (nothing is unstable without transactions) · v8 many groups · v9 members of KIP-848
groups · v10 topics by id. v0 meant ZooKeeper in old Kafka; it is served like the others.

A commit is answered when it is on disk and visible. One bad partition does not spoil the others.
Each topic wants READ (commit) or DESCRIBE (fetch) besides the group's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trilogue.broker.access import Operation, Resource, ResourceKind
from trilogue.broker.cluster import Cluster
from trilogue.broker.consumer_group_classic import MixedGroup
from trilogue.broker.cursor import refusal
from trilogue.broker.errors import AccessDenied, BrokerError, InvalidName, UnknownTopic
from trilogue.broker.facts import NOT_SAID, CursorMove, Protocol
from trilogue.broker.names import spelled_kafka
from trilogue.broker.promise import Promise
from trilogue.broker.topic import Topic
from trilogue.gateway.kafka.errors import code_of
from trilogue.gateway.kafka.shared import Answer, Call, Mapped
from trilogue.gateway.turns import at_once_or_in_turns
from trilogue.log.steps import Steps
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.offsets import (
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
YIELD_EVERY = 1_000  # positions told in one go, before others may use the loop
LOOKED_AT_ONCE = 5_000  # partitions whose topic is looked up
NO_TIME = -1  # the client does not say when
TIMES_MAX = 100  # different ones in a commit

Moves = dict[int, list[CursorMove]]  # by when they were made


# ---- commit


def commit(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse | Mapped[None]:
    """Move the group's positions."""
    code = _group_code(call, request)
    moves: Moves = {}
    response = OffsetCommitResponse(
        topics=[_commit_topic(call, topic, code, moves) for topic in request.topics]
    )
    if not moves:
        return response
    try:
        for at_ms, some in _few_times(moves).items():
            promise = call.broker.commit(
                Protocol.KAFKA,
                request.group_id,
                some,
                at_ms=None if at_ms == NO_TIME else at_ms,
                retention_ms=max(request.retention_time_ms, NOT_SAID),
            )
    except BrokerError as problem:
        return _spoiled(response, code_of(problem))

    def respond(promise: Promise[None]) -> OffsetCommitResponse:
        if promise.error is None:
            return response
        return _spoiled(response, code_of(promise.error))

    return Mapped(promise, respond)


def _few_times(moves: Moves) -> Moves:
    """Commit what was made at very many times as of the last one, which keeps it the longest.

    Each time is a fact of its own; 100,000 of them held the loop for more than a second.
    """
    if len(moves) <= TIMES_MAX:
        return moves
    at_ms = NO_TIME if NO_TIME in moves else max(moves)
    return {at_ms: [move for some in moves.values() for move in some]}


def _group_code(call: Call, request: OffsetCommitRequest) -> ErrorCode:
    if not call.allowed(request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    epoch = request.generation_id_or_member_epoch
    group = call.broker.groups.find(request.group_id)
    if group is None and epoch >= 0 and call.version >= EPOCHS_SINCE:
        return ErrorCode.UNKNOWN_MEMBER_ID  # after a restart: it joins again
    if isinstance(group, MixedGroup) and call.version < EPOCHS_SINCE:
        member = group.members.find(request.member_id)
        if member is not None and member.classic is None:
            return ErrorCode.UNSUPPORTED_VERSION
    try:
        call.broker.groups.check_commit(
            request.group_id, request.member_id, epoch, request.group_instance_id
        )
    except BrokerError as problem:
        return code_of(problem)
    return ErrorCode.NONE


def _commit_topic(
    call: Call, asked: OffsetCommitRequestTopic, code: ErrorCode, moves: Moves
) -> OffsetCommitResponseTopic:
    topic: Topic | None = None
    if not code:
        try:
            topic = _topic(call, asked.name, asked.topic_id, Operation.READ)
        except InvalidName:  # there is no such topic
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        except BrokerError as problem:
            code = code_of(problem)
    return OffsetCommitResponseTopic(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[
            OffsetCommitResponsePartition(
                partition_index=each.partition_index,
                error_code=code if topic is None else _move(call, topic, each, moves),
            )
            for each in asked.partitions
        ],
    )


def _move(call: Call, topic: Topic, asked: OffsetCommitRequestPartition, moves: Moves) -> ErrorCode:
    if not 0 <= asked.partition_index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    move = CursorMove(
        topic.partitions[asked.partition_index].partition_id,
        asked.committed_offset,
        asked.committed_leader_epoch,
        asked.committed_metadata or "",
    )
    problem = refusal(call.broker.cursors, move)
    if problem is not None:
        return code_of(problem)
    moves.setdefault(max(asked.commit_timestamp, NO_TIME), []).append(move)
    return ErrorCode.NONE


def _spoiled(response: OffsetCommitResponse, code: ErrorCode) -> OffsetCommitResponse:
    for topic in response.topics:
        for partition in topic.partitions:
            partition.error_code = partition.error_code or code
    return response


# ---- fetch


class Places:
    """Which topic each partition is of, looked up at the first question of a request."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._found: dict[int, tuple[Topic, int]] | None = None

    def of(self, partition_ids: Iterable[int]) -> Steps[dict[Topic, list[int]]]:
        """Return the topics of some partitions, and which of theirs these are."""
        if self._found is None:
            self._found = yield from self._look()
        found: dict[Topic, list[int]] = {}
        for count, partition_id in enumerate(partition_ids, 1):
            if count % LOOKED_AT_ONCE == 0:
                yield
            place = self._found.get(partition_id)
            if place is not None:
                found.setdefault(place[0], []).append(place[1])
        return found

    def _look(self) -> Steps[dict[int, tuple[Topic, int]]]:
        found: dict[int, tuple[Topic, int]] = {}
        left = LOOKED_AT_ONCE
        for topic in list(self._cluster):
            for index, partition in enumerate(topic.partitions):
                found[partition.partition_id] = topic, index
            left -= 1 + len(topic.partitions)
            if left <= 0:
                left = LOOKED_AT_ONCE
                yield
        return found


def fetch(call: Call, request: OffsetFetchRequest) -> Answer:
    """Tell the positions of one group, or of many; large ones in turns."""
    if call.version >= MANY_GROUPS_SINCE:
        return at_once_or_in_turns(_fetch_many(call, request.groups))
    return at_once_or_in_turns(_fetch_one(call, request))


def _fetch_one(call: Call, request: OffsetFetchRequest) -> Steps[OffsetFetchResponse]:
    topics = request.topics
    group = yield from _group(
        call,
        OffsetFetchRequestGroup(
            group_id=request.group_id,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
                for each in topics
            ],
        ),
        Places(call.broker.cluster),
    )
    code = 0 if call.version >= GROUP_ERROR_SINCE else group.error_code
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


def _fetch_many(call: Call, asked: list[OffsetFetchRequestGroup]) -> Steps[OffsetFetchResponse]:
    """Tell of many groups; all that one has only once, however often it is asked for."""
    response = OffsetFetchResponse()
    places = Places(call.broker.cluster)
    whole: set[str] = set()
    told = 0
    for each in asked:
        if each.topics is None:
            if each.group_id in whole:
                continue
            whole.add(each.group_id)
        group = yield from _group(call, each, places)
        response.groups.append(group)
        told += 1 + sum(len(topic.partitions) for topic in group.topics)
        if told >= YIELD_EVERY:
            told = 0
            yield
    return response


def _group(
    call: Call, asked: OffsetFetchRequestGroup, places: Places
) -> Steps[OffsetFetchResponseGroup]:
    denied = not call.allowed(asked.group_id)
    if not denied:
        try:
            call.broker.groups.check_fetch(asked.group_id, asked.member_id, asked.member_epoch)
        except BrokerError as problem:
            return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code_of(problem))
    found: list[OffsetFetchResponseTopics] = []
    tell: Iterator[OffsetFetchResponseTopics]
    if asked.topics is not None:
        tell = (_fetch_topic(call, asked.group_id, each, denied=denied) for each in asked.topics)
    elif denied:
        tell = iter(())
    else:
        ids = list(call.broker.cursors.positions(Protocol.KAFKA, asked.group_id))
        theirs = (yield from places.of(ids)) if ids else {}
        tell = _all_topics(call, asked.group_id, theirs)
    told = 0
    for topic in tell:
        found.append(topic)
        told += 1 + len(topic.partitions)
        if told >= YIELD_EVERY:
            told = 0
            yield
    return OffsetFetchResponseGroup(
        group_id=asked.group_id,
        topics=found,
        error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED if denied else ErrorCode.NONE,
    )


def _all_topics(
    call: Call, group: str, theirs: dict[Topic, list[int]]
) -> Iterator[OffsetFetchResponseTopics]:
    for topic, indexes in theirs.items():
        if call.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic.name):
            yield OffsetFetchResponseTopics(
                name=spelled_kafka(topic.name),
                topic_id=topic.topic_id,
                partitions=[_position(call, group, topic, index) for index in sorted(indexes)],
            )


def _fetch_topic(
    call: Call, group: str, asked: OffsetFetchRequestTopics, *, denied: bool
) -> OffsetFetchResponseTopics:
    """A topic that does not exist has no positions, which is no error; an unknown id is one."""
    topic: Topic | None = None
    code = ErrorCode.NONE
    if not denied:
        try:
            topic = _topic(call, asked.name, asked.topic_id, Operation.DESCRIBE)
        except (UnknownTopic, InvalidName):
            pass
        except BrokerError as problem:
            code = code_of(problem)
    return OffsetFetchResponseTopics(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[
            _no_position(index, code) if topic is None else _position(call, group, topic, index)
            for index in asked.partition_indexes
        ],
    )


def _position(call: Call, group: str, topic: Topic, index: int) -> OffsetFetchResponsePartitions:
    if not 0 <= index < len(topic.partitions):
        return _no_position(index, ErrorCode.NONE)
    partition_id = topic.partitions[index].partition_id
    position = call.broker.cursors.position(Protocol.KAFKA, group, partition_id)
    if position is None:
        return _no_position(index, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=position.offset,
        committed_leader_epoch=position.owner_epoch,
        metadata=position.metadata,
    )


def _no_position(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
    )


def _topic(call: Call, name: str, topic_id: bytes, operation: Operation) -> Topic:
    topic = call.door.topic_by_id(topic_id) if call.version >= IDS_SINCE else call.door.topic(name)
    if not call.may(operation, ResourceKind.TOPIC, topic.name):
        raise AccessDenied(operation, Resource(ResourceKind.TOPIC, str(topic.name)))
    return topic
