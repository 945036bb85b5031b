"""sendMessageP2B: append a message and respond when it is durable. A hot path: no protobuf objects.

The response is encoded at once, as the frame that will leave, and waits in the connection's list of
receipts of this loop iteration. When the commit fails, the frames are replaced by errors. A topic
that is acknowledged from memory has its responses sent with the iteration.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from trilogue.broker.access.authorizer import (
    ANONYMOUS,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)
from trilogue.broker.errors import AccessDenied, InvalidName, UnknownTopic
from trilogue.broker.names import parse_tubemq
from trilogue.broker.topics.partition import Partition
from trilogue.entry.entry import EntryHeader
from trilogue.entry.tubemq.tubemq_entry import WrongChecksum, build_entry, message_id
from trilogue.gateway.stream import Buffer
from trilogue.gateway.tubemq.auth.authentication import Role
from trilogue.gateway.tubemq.client_connection import ClientConnection
from trilogue.gateway.tubemq.errors import EXPECTED, TEXT_MAX, TubeRequestError, code_of
from trilogue.wire.tubemq.broker_pb2 import AuthorizedInfo, SendMessageResponseB2P
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.frame import RpcRequest, encode_response
from trilogue.wire.tubemq.rpc_codec import encode_send_response, parse_send
from trilogue.wire.tubemq.rpc_types import SendRequest

METHOD = 13
_SERIAL_AT = 4
_SERIAL = Struct(">i")
WRITE = Operation.WRITE
EMPTY_DATA = "data length is zero!"
WRONG_CHECKSUM = "Checksum msg data failure: {} of {} not equal to the data's checksum of {}"
OVERFLOW = "server receive message overflow!"


def append_message(connection: ClientConnection, request: RpcRequest) -> None:
    """Append one message, or respond with an error."""
    gateway = connection.gateway
    sent = parse_send(request.body, request.serial)
    data = sent.data
    size = len(data)
    now_ms = gateway.now_ms()
    principal = ANONYMOUS
    try:
        principal = _authenticate(connection, sent) if gateway.guards_sends else ANONYMOUS
        target = gateway.find_target(sent.topic)
        if not (
            gateway.authorizer.allows_all
            or connection.access_of(principal).is_allowed(WRITE, *target.resource)
        ):
            raise AccessDenied(WRITE, target.resource)
        partitions = target.partitions
        index = sent.partition_id
        if not 0 <= index < len(partitions):
            raise UnknownTopic(
                f"partitionId {sent.topic}-{index} not existed, please check your configure"
            )
        if not 0 < size <= target.data_bytes_max:
            raise _size_error(size, target.data_bytes_max)
        if not target.accepts_publish:
            raise _not_published_error(connection, sent)
        entry, header = build_entry(
            data,
            sent.flag,
            sent.checksum,
            sent.sent_addr,
            sent.message_type,
            sent.message_time,
            now_ms,
        )
        partition = partitions[index]
        offset = partition.plain.append_entry(entry, header, size)
        acks_from_memory = False
        if offset < 0:
            offset, acks_from_memory = _append(partition, entry, header, now_ms, size)
    except WrongChecksum as problem:
        text = WRONG_CHECKSUM.format(problem.given, sent.topic, problem.actual)
        connection.write(encode_error(request.serial, TubeCode.FORBIDDEN, text))
        return
    except EXPECTED as problem:
        shown = _hide_missing(connection, principal, sent.topic, problem)
        connection.write(encode_error(request.serial, code_of(shown), str(shown)))
        return
    stored_id = message_id(partition.log.partition_id, offset)
    receipt = encode_send_response(request.serial, stored_id, now_ms, offset)
    _count_sent(connection, principal, sent, partition)
    if gateway.tracer is not None:
        from trilogue.gateway.telemetry.tubemq_messages import trace_sent

        trace_sent(gateway.tracer, gateway.journal, target.resource.name, sent, offset)
    if acks_from_memory:
        connection.write(receipt)
    else:
        connection.receipts.append(receipt)


def _append(
    partition: Partition, entry: memoryview, header: EntryHeader, now_ms: int, size: int
) -> tuple[int, bool]:
    """Append to a topic with extras; return the offset, and whether memory acknowledges it."""
    appended = partition.append_entry(entry, header, now_ms=now_ms, size=size, encrypted=False)
    return appended.base_offset, appended.acks_from_memory


def _count_sent(
    connection: ClientConnection, principal: Principal, sent: SendRequest, partition: Partition
) -> None:
    gateway, size = connection.gateway, len(sent.data)
    gateway.messages_in += 1
    gateway.bytes_in += size
    if gateway.quotas.active or partition.rates is not None:
        connection.byte_quotas.count_produced(
            principal.name, sent.client_id, 1, size, partition.rates
        )


def _hide_missing(
    connection: ClientConnection, principal: Principal, spelled: str, problem: Exception
) -> Exception:
    """Return the error to send: of a missing topic none that reveals it without a right."""
    if not isinstance(problem, UnknownTopic):
        return problem
    try:
        resource = Resource(ResourceKind.TOPIC, str(parse_tubemq(spelled)))
    except InvalidName:
        return problem
    if connection.access_of(principal).is_allowed(WRITE, *resource):
        return problem
    return AccessDenied(WRITE, resource)


def encode_error(serial: int, code: TubeCode, text: str) -> Buffer:
    """Return the frame of an error response to a send."""
    response = SendMessageResponseB2P(
        success=False, errCode=code, errMsg=text[:TEXT_MAX] or code.name
    )
    return encode_response(serial, METHOD, response.SerializeToString())


def reject_overflow(connection: ClientConnection, request: RpcRequest) -> None:
    """Respond 419: the log had no room for the message within its client's timeout."""
    code = TubeCode.SERVER_RECEIVE_OVERFLOW
    connection.write(encode_error(request.serial, code, OVERFLOW))


def replace_responses(responses: Iterable[Buffer], problem: BaseException) -> list[Buffer]:
    """Return error responses in place of those to messages that were not written."""
    code, text = TubeCode.SERVICE_UNAVAILABLE, f"the message was not kept: {problem}"
    return [
        encode_error(_SERIAL.unpack_from(each, _SERIAL_AT)[0], code, text) for each in responses
    ]


def _authenticate(connection: ClientConnection, sent: SendRequest) -> Principal:
    """Return the principal that sends a message; raises AuthenticationFailed."""
    certificate = AuthorizedInfo(
        visitAuthorizedToken=sent.visit_token or 0, authAuthorizedToken=sent.auth_token or ""
    )
    authentication = connection.gateway.authentication
    return authentication.authenticate(Role.PRODUCER, connection, sent.client_id, certificate)


def _size_error(size: int, most: int) -> TubeRequestError:
    if not size:
        return TubeRequestError(TubeCode.BAD_REQUEST, EMPTY_DATA)
    text = f"data length over max length, allowed max length is {most}, data length is {size}"
    return TubeRequestError(TubeCode.BAD_REQUEST, text)


def _not_published_error(connection: ClientConnection, sent: SendRequest) -> TubeRequestError:
    if not connection.gateway.broker.rules.broker.publishes:
        return TubeRequestError(
            TubeCode.SERVICE_UNAVAILABLE, "Write StoreService temporary unavailable!"
        )
    return TubeRequestError(TubeCode.FORBIDDEN, f"topicName {sent.topic} has been closed")
