"""What consumers say to a broker besides their gets: register, unregister, heartbeat, confirm.

Each partition is registered by itself, and has one reader for each group. An answer that tells of a
new position waits until that is durable. What is refused is refused with the words of a real
broker, since people look for them (wire facts, section 5; captured).
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import Message

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.errors import UnknownTopic
from trilogue.broker.partition import Partition
from trilogue.broker.promise import Promise
from trilogue.broker.readings import NO_OFFSET, Reader
from trilogue.gateway.tubemq.authentication import Role
from trilogue.gateway.tubemq.call import Call
from trilogue.gateway.tubemq.errors import Refusal
from trilogue.wire.errors import WireError
from trilogue.wire.tubemq.broker_pb2 import (
    AuthorizedInfo,
    CommitOffsetRequestC2B,
    CommitOffsetResponseB2C,
    HeartBeatRequestC2B,
    HeartBeatResponseB2C,
    RegisterRequestC2B,
    RegisterResponseB2C,
)
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.messages import Partition as Place

REGISTER: Final = 31
UNREGISTER: Final = 32
CONSUMED: Final = 0  # the readStatus of an unregister: what was handed out last is done with
PARTITIONS_MAX: Final = 20_000  # of one heartbeat: as many as the master lets a consumer have
OK: Final = "OK!"


def register(call: Call) -> Message | None:
    """Answer consumerRegisterC2B, which registers and unregisters."""
    request: RegisterRequestC2B = call.request
    if request.opType == REGISTER:
        return _register(call, request)
    if request.opType == UNREGISTER:
        return _unregister(call, request)
    raise Refusal(TubeCode.BAD_REQUEST, f"Invalid request:{request.opType}")


def _register(call: Call, request: RegisterRequestC2B) -> Message | None:
    door, readings = call.door, call.door.broker.readings
    client_id, group, index = request.clientId, request.groupName, request.partitionId
    _check_name(call, "clientId", client_id)
    _check_name(call, "groupName", group)
    admit(call, request.authInfo if request.HasField("authInfo") else None)
    topic = door.target(request.topicName).topic
    call.check_access(Operation.READ, ResourceKind.TOPIC, topic.name)
    call.check_access(Operation.READ, ResourceKind.GROUP, group)
    if not door.broker.rules.accepts_subscribe(topic):
        raise Refusal(
            TubeCode.PARTITION_NOT_SUBSCRIBABLE, f"topic {request.topicName} is not read now"
        )
    denial = door.broker.rules.may_consume(group, topic.name, tuple(request.filterCondStr))
    if denial is not None:
        raise Refusal(TubeCode(denial.code), denial.text)
    if not 0 <= index < len(topic.partitions):
        raise Refusal(
            TubeCode.INTERNAL_ERROR,
            f"Register broker failure!, exception is Wrong partition value {index},"
            f"valid partitions in (0,{len(topic.partitions) - 1})",
        )
    partition = topic.partitions[index]
    now_ms = door.gets.now_ms
    other = readings.occupant(partition.partition_id, group, client_id, now_ms)
    if other:
        raise Refusal(
            TubeCode.PARTITION_OCCUPIED,
            f"[Duplicated Register] Partition 1#{group}:{request.topicName}:{index} "
            f"has been registered by {other}",
        )
    reader, promise = readings.register(
        partition,
        group,
        client_id,
        now_ms=now_ms,
        filters=request.filterCondStr,
        offset=request.currOffset if request.HasField("currOffset") else NO_OFFSET,
        read_status=request.readStatus,
        principal=call.principal,
    )
    door.gets.holds.registered(reader, door.loop)
    return _when(
        call,
        promise,
        RegisterResponseB2C(
            success=True,
            errCode=TubeCode.SUCCESS,
            errMsg=OK,
            currOffset=reader.committed,
            maxOffset=partition.log.high_watermark,
        ),
    )


def _unregister(call: Call, request: RegisterRequestC2B) -> Message | None:
    client_id, group, index = request.clientId, request.groupName, request.partitionId
    admit(call, request.authInfo if request.HasField("authInfo") else None)
    call.check_access(Operation.READ, ResourceKind.GROUP, group)
    reader = find_reader(call, request.topicName, index, group)
    if reader is None:
        raise Refusal(
            TubeCode.NO_NODE,
            f"UnRegistered Consumer {client_id}, you have to register firstly!",
        )
    if reader.client_id != client_id:
        raise Refusal(
            TubeCode.DUPLICATE_PARTITION,
            f"[Duplicated Request] Partition {group}:{request.topicName}:{index} "
            f"has been consumed by {reader.client_id};Current consumer {client_id}",
        )
    call.door.gets.holds.asked(reader)  # a get that is held is over, and nobody's mistake
    promise = call.door.broker.readings.unregister(reader, consumed=request.readStatus == CONSUMED)
    response = RegisterResponseB2C(success=True, errCode=TubeCode.SUCCESS, errMsg=OK, currOffset=-1)
    return _when(call, promise, response)


def heartbeat(call: Call) -> Message:
    """Answer consumerHeartbeatC2B: say which of the partitions are not this client's."""
    request: HeartBeatRequestC2B = call.request
    door, readings = call.door, call.door.broker.readings
    client_id, group = request.clientId, request.groupName
    certificate = request.authInfo if request.HasField("authInfo") else None
    admit(call, certificate)
    call.check_access(Operation.READ, ResourceKind.GROUP, group)
    if len(request.partitionInfo) > PARTITIONS_MAX:
        raise Refusal(
            TubeCode.BAD_REQUEST, f"a heartbeat names at most {PARTITIONS_MAX} partitions"
        )
    now_ms = door.gets.now_ms
    failures: list[str] = []
    for text in request.partitionInfo:
        try:
            place = Place.parse(text)
        except WireError as problem:
            raise Refusal(TubeCode.BAD_REQUEST, str(problem)) from problem
        reader = find_reader(call, place.topic, place.partition_id, group)
        if reader is None:
            failures.append(f"{TubeCode.NO_NODE:d}:{text}")
        elif reader.client_id != client_id:
            failures.append(f"{TubeCode.DUPLICATE_PARTITION:d}:{text}")
        else:
            readings.heard(reader, now_ms)
    return HeartBeatResponseB2C(
        success=True,
        errCode=TubeCode.SUCCESS,
        errMsg=OK,
        hasPartFailure=bool(failures),
        failureInfo=failures,
        requireAuth=door.authentication.require_auth(
            Role.CONSUMER, call.connection, client_id, certificate
        ),
    )


def commit(call: Call) -> Message | None:
    """Answer consumerCommitC2B: what was handed out last is done with, or shall come again."""
    request: CommitOffsetRequestC2B = call.request
    door, readings = call.door, call.door.broker.readings
    client_id, group = request.clientId, request.groupName
    admit(call, None)
    reader = find_reader(call, request.topicName, request.partitionId, group)
    if reader is None:
        raise Refusal(TubeCode.UNAUTHORIZED, "The partition not registered by consumers")
    if reader.client_id != client_id:
        raise Refusal(
            TubeCode.UNAUTHORIZED,
            f"The partition has been registered by other consumer:{reader.client_id}",
        )
    call.check_access(Operation.READ, ResourceKind.GROUP, group)
    readings.heard(reader, door.gets.now_ms)
    promise = readings.confirm(reader, consumed=request.lastPackConsumed)
    door.gets.holds.answered(reader, door.loop, 0.0)
    return _when(
        call,
        promise,
        CommitOffsetResponseB2C(
            success=True,
            errCode=TubeCode.SUCCESS,
            errMsg=OK,
            currOffset=reader.committed,
            maxOffset=reader.partition.log.high_watermark,
        ),
    )


def admit(call: Call, certificate: AuthorizedInfo | None) -> None:
    """Know who asks; refuse whoever speaks for another user's consumer."""
    request = call.request
    call.authenticate(Role.CONSUMER, request.clientId, certificate)
    consumer = call.door.broker.readings.consumer(request.groupName, request.clientId)
    if consumer is not None and consumer.principal != call.principal:
        raise Refusal(TubeCode.CERTIFICATE_FAILURE, "this consumer is another user's")


def find_reader(call: Call, topic_name: str, index: int, group: str) -> Reader | None:
    """Who reads a partition for a group; None where nobody does, or there is no such partition."""
    partition = find_partition(call, topic_name, index)
    if partition is None:
        return None
    return call.door.broker.readings.find(partition.partition_id, group)


def find_partition(call: Call, topic_name: str, index: int) -> Partition | None:
    """The partition of this number, None where there is none."""
    try:
        topic = call.door.target(topic_name).topic
    except UnknownTopic:
        return None
    return topic.partitions[index] if 0 <= index < len(topic.partitions) else None


def _check_name(call: Call, what: str, name: str) -> None:
    most = call.door.settings.client_id_max
    if not name.strip():
        raise Refusal(TubeCode.BAD_REQUEST, f"Request miss necessary {what} data!")
    if len(name) > most:
        raise Refusal(TubeCode.BAD_REQUEST, f"{what}'s length must be less than {most}")


def _when(call: Call, promise: Promise[None] | None, message: Message) -> Message | None:
    """Answer when the position that the answer tells of is durable."""
    if promise is None:
        return message
    if promise.done:
        promise.result()
        return message

    def settle(kept: Promise[None]) -> None:
        error = kept.error
        if error is None:
            call.answer(message)
        else:
            call.problem(error)

    promise.then(lambda kept: call.connection.guarded(lambda: settle(kept)))
    return None
