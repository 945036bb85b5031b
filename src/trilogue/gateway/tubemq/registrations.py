"""Registrations of consumers at the broker: register, unregister, heartbeat, confirm.

Each partition is registered by itself, by one consumer of each group. A response that contains a
new position is sent when the position is durable. Errors have the texts of a real broker, because
users search for them (docs/reference/wire/tubemq.md).
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import Message

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import UnknownTopic
from trilogue.broker.promise import Promise
from trilogue.broker.topics.partition import Partition
from trilogue.broker.tubemq.registrations import NO_OFFSET, Registration, StartFrom
from trilogue.gateway.tubemq.auth.authentication import Role
from trilogue.gateway.tubemq.errors import TubeRequestError
from trilogue.gateway.tubemq.master import check_consume_rules
from trilogue.gateway.tubemq.request_context import RequestContext
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
from trilogue.wire.tubemq.text_fields import Partition as PartitionText

REGISTER: Final = 31
UNREGISTER: Final = 32
START_FROM: Final = {0: StartFrom.FIRST_MESSAGE, 2: StartFrom.ALWAYS_END}  # else the end
CONSUMED: Final = 0  # readStatus of an unregister: the messages delivered last are confirmed
PARTITIONS_MAX: Final = 20_000  # of one heartbeat: as many as the master lets a consumer have
OK: Final = "OK!"


def register(context: RequestContext) -> Message | None:
    """Answer consumerRegisterC2B, which registers and unregisters."""
    request: RegisterRequestC2B = context.request
    if request.opType == REGISTER:
        return _register(context, request)
    if request.opType == UNREGISTER:
        return _unregister(context, request)
    raise TubeRequestError(TubeCode.BAD_REQUEST, f"Invalid request:{request.opType}")


def _register(context: RequestContext, request: RegisterRequestC2B) -> Message | None:
    gateway, group = context.gateway, request.groupName
    _check_name(context, "clientId", request.clientId)
    _check_name(context, "groupName", group)
    partition = _find_readable_partition(context, request)
    now_ms = gateway.monotonic_ms
    registrations, broker_id = gateway.broker.registrations, gateway.brokers.own_id
    where = f"{broker_id}#{group}:{request.topicName}:{request.partitionId}"
    other = registrations.occupant(
        partition.partition_id, group, request.clientId, now_ms, broker_id=broker_id
    )
    if other:
        raise TubeRequestError(
            TubeCode.PARTITION_OCCUPIED,
            f"[Duplicated Register] Partition {where} has been registered by {other}",
        )
    registration, promise = registrations.register(
        partition,
        group,
        request.clientId,
        now_ms=now_ms,
        filters=request.filterCondStr,
        offset=request.currOffset if request.HasField("currOffset") else NO_OFFSET,
        start_from=START_FROM.get(request.readStatus, StartFrom.END),
        principal=context.principal,
        broker_id=broker_id,
    )
    gateway.held_gets.response_sent(registration, gateway.loop)
    return _respond_when_durable(
        context,
        promise,
        RegisterResponseB2C(
            success=True,
            errCode=TubeCode.SUCCESS,
            errMsg=OK,
            currOffset=registration.committed,
            maxOffset=partition.log.high_watermark,
        ),
    )


def _find_readable_partition(context: RequestContext, request: RegisterRequestC2B) -> Partition:
    """Return the partition to register; raises where the consumer may not read it."""
    gateway, group, index = context.gateway, request.groupName, request.partitionId
    admit(context, request.authInfo if request.HasField("authInfo") else None)
    target = context.require_target(Operation.READ, request.topicName)
    topic, partitions = target.topic, target.partitions
    context.check_access(Operation.READ, ResourceKind.GROUP, group)
    if not gateway.broker.rules.accepts_subscribe(topic):
        raise TubeRequestError(
            TubeCode.PARTITION_NOT_SUBSCRIBABLE, f"topic {request.topicName} is not read now"
        )
    check_consume_rules(gateway.broker, group, topic.name, tuple(request.filterCondStr))
    if not 0 <= index < len(partitions):
        raise TubeRequestError(
            TubeCode.INTERNAL_ERROR,
            f"Register broker failure!, exception is Wrong partition value {index},"
            f"valid partitions in (0,{len(partitions) - 1})",
        )
    return partitions[index]


def _unregister(context: RequestContext, request: RegisterRequestC2B) -> Message | None:
    client_id, group, index = request.clientId, request.groupName, request.partitionId
    admit(context, request.authInfo if request.HasField("authInfo") else None)
    context.check_access(Operation.READ, ResourceKind.GROUP, group)
    registration = find_registration(context, request.topicName, index, group)
    if registration is None:
        raise TubeRequestError(
            TubeCode.NO_NODE,
            f"UnRegistered Consumer {client_id}, you have to register firstly!",
        )
    if registration.client_id != client_id:
        raise TubeRequestError(
            TubeCode.DUPLICATE_PARTITION,
            f"[Duplicated Request] Partition {group}:{request.topicName}:{index} "
            f"has been consumed by {registration.client_id};Current consumer {client_id}",
        )
    context.gateway.held_gets.begin_get(registration)  # ends a held get with 404, not with 411
    promise = context.gateway.broker.registrations.unregister(
        registration, consumed=request.readStatus == CONSUMED
    )
    response = RegisterResponseB2C(success=True, errCode=TubeCode.SUCCESS, errMsg=OK, currOffset=-1)
    return _respond_when_durable(context, promise, response)


def heartbeat(context: RequestContext) -> Message:
    """Answer consumerHeartbeatC2B: list the partitions that are not this client's."""
    request: HeartBeatRequestC2B = context.request
    gateway = context.gateway
    client_id, group = request.clientId, request.groupName
    certificate = request.authInfo if request.HasField("authInfo") else None
    admit(context, certificate)
    context.check_access(Operation.READ, ResourceKind.GROUP, group)
    if len(request.partitionInfo) > PARTITIONS_MAX:
        raise TubeRequestError(
            TubeCode.BAD_REQUEST, f"a heartbeat names at most {PARTITIONS_MAX} partitions"
        )
    now_ms = gateway.monotonic_ms
    failures: list[str] = []
    for text in request.partitionInfo:
        try:
            partition = PartitionText.parse(text)
        except WireError as problem:
            raise TubeRequestError(TubeCode.BAD_REQUEST, str(problem)) from problem
        registration = None
        if partition.broker.broker_id == gateway.brokers.own_id:  # else a key of other slots
            registration = find_registration(
                context, partition.topic, partition.partition_id, group
            )
        if registration is None:
            failures.append(f"{TubeCode.NO_NODE:d}:{text}")
        elif registration.client_id != client_id:
            failures.append(f"{TubeCode.DUPLICATE_PARTITION:d}:{text}")
        else:
            gateway.broker.registrations.touch(registration, now_ms)
    return HeartBeatResponseB2C(
        success=True,
        errCode=TubeCode.SUCCESS,
        errMsg=OK,
        hasPartFailure=bool(failures),
        failureInfo=failures,
        requireAuth=gateway.authentication.needs_signature(
            Role.CONSUMER, context.connection, client_id, certificate
        ),
    )


def commit_offset(context: RequestContext) -> Message | None:
    """Answer consumerCommitC2B: confirm the messages delivered last, or have them sent again."""
    request: CommitOffsetRequestC2B = context.request
    gateway = context.gateway
    client_id, group = request.clientId, request.groupName
    admit(context, None)
    registration = find_registration(context, request.topicName, request.partitionId, group)
    if registration is None:
        raise TubeRequestError(TubeCode.UNAUTHORIZED, "The partition not registered by consumers")
    if registration.client_id != client_id:
        raise TubeRequestError(
            TubeCode.UNAUTHORIZED,
            f"The partition has been registered by other consumer:{registration.client_id}",
        )
    context.check_access(Operation.READ, ResourceKind.GROUP, group)
    gateway.broker.registrations.touch(registration, gateway.monotonic_ms)
    promise = gateway.broker.registrations.confirm(registration, consumed=request.lastPackConsumed)
    gateway.held_gets.response_sent(registration, gateway.loop)
    return _respond_when_durable(
        context,
        promise,
        CommitOffsetResponseB2C(
            success=True,
            errCode=TubeCode.SUCCESS,
            errMsg=OK,
            currOffset=registration.committed,
            maxOffset=registration.partition.log.high_watermark,
        ),
    )


def admit(context: RequestContext, certificate: AuthorizedInfo | None) -> None:
    """Authenticate a consumer; raises where its client id is another user's."""
    request = context.request
    context.authenticate(Role.CONSUMER, request.clientId, certificate)
    consumer = context.gateway.broker.registrations.consumer(request.groupName, request.clientId)
    if consumer is not None and consumer.principal != context.principal:
        raise TubeRequestError(TubeCode.CERTIFICATE_FAILURE, "this consumer is another user's")


def find_registration(
    context: RequestContext, topic_name: str, index: int, group: str
) -> Registration | None:
    """Return the registration of a group for a partition; None without it or the partition."""
    partition = find_partition(context, topic_name, index)
    if partition is None:
        return None
    return context.gateway.broker.registrations.find_registration(partition.partition_id, group)


def find_partition(context: RequestContext, topic_name: str, index: int) -> Partition | None:
    """Return the partition of this number; None where there is none."""
    try:
        partitions = context.gateway.find_target(topic_name).partitions
    except UnknownTopic:
        return None
    return partitions[index] if 0 <= index < len(partitions) else None


def _check_name(context: RequestContext, what: str, name: str) -> None:
    most = context.gateway.settings.client_id_max
    if not name.strip():
        raise TubeRequestError(TubeCode.BAD_REQUEST, f"Request miss necessary {what} data!")
    if len(name) > most:
        raise TubeRequestError(TubeCode.BAD_REQUEST, f"{what}'s length must be less than {most}")


def _respond_when_durable(
    context: RequestContext, promise: Promise[None] | None, message: Message
) -> Message | None:
    """Return the response, or None where it is sent later, when its position is durable."""
    if promise is None:
        return message
    if promise.done:
        promise.result()
        return message

    def respond(committed: Promise[None]) -> None:
        error = committed.error
        if error is None:
            context.respond(message)
        else:
            context.respond_exception(error)

    promise.then(lambda committed: context.connection.guarded(lambda: respond(committed)))
    return None
