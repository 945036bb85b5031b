"""sendMessageP2B: append, and an answer when it is durable. The hot path: no protobuf objects.

The answer is made at once, as the frame that will leave, and waits in the connection's list of this
turn. When the commit fails, answers are read again and become refusals. Of a topic that is
acknowledged from memory an answer leaves with the turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING

from trilogue.broker.access import ANONYMOUS, Operation
from trilogue.broker.errors import AccessDenied, UnknownTopic
from trilogue.entry.tubemq_entry import WrongChecksum, build_entry, message_id
from trilogue.gateway.tubemq.authentication import Role
from trilogue.gateway.tubemq.errors import EXPECTED, TEXT_MAX, Refusal, code_of
from trilogue.wire.tubemq.broker_pb2 import AuthorizedInfo, SendMessageResponseB2P
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.frame import Request, answer
from trilogue.wire.tubemq.hot import read_send, send_answer

if TYPE_CHECKING:
    from trilogue.broker.access import Principal
    from trilogue.gateway.stream import Buffer
    from trilogue.gateway.tubemq.connection import TubeConnection
    from trilogue.wire.tubemq.shapes import Send

METHOD = 13
_SERIAL_AT = 4
_SERIAL = Struct(">i")
WRITE = Operation.WRITE
EMPTY = "data length is zero!"
WRONG_CHECKSUM = "Checksum msg data failure: {} of {} not equal to the data's checksum of {}"
OVERFLOW = "server receive message overflow!"


def take(connection: TubeConnection, request: Request) -> None:
    """Append one message."""
    door = connection.door
    sent = read_send(request.body, request.serial)
    data = sent.data
    size = len(data)
    now_ms = door.now_ms()
    try:
        principal = _who(connection, sent) if door.guards_sends else ANONYMOUS
        target = door.target(sent.topic)
        partitions = target.topic.partitions
        index = sent.partition_id
        if not 0 <= index < len(partitions):
            raise UnknownTopic(
                f"partitionId {sent.topic}-{index} not existed, please check your configure"
            )
        if not size:
            raise Refusal(TubeCode.BAD_REQUEST, EMPTY)
        if size > target.data_bytes_max:
            raise _too_large(size, target.data_bytes_max)
        if not door.authorizer.allowed(principal, WRITE, target.resource):
            raise AccessDenied(WRITE, target.resource)
        if not target.takes_messages:
            raise _closed(connection, sent)
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
        appended = partition.append_entry(entry, header, now_ms=now_ms, size=size, encrypted=False)
    except WrongChecksum as problem:
        text = WRONG_CHECKSUM.format(problem.given, sent.topic, problem.actual)
        connection.write(refusal(request.serial, TubeCode.FORBIDDEN, text))
        return
    except EXPECTED as problem:
        connection.write(refusal(request.serial, code_of(problem), str(problem)))
        return
    offset = appended.base_offset
    told = message_id(partition.log.partition_id, offset)
    receipt = send_answer(request.serial, told, now_ms, offset)
    door.messages_in += 1
    door.bytes_in += size
    if appended.patient:
        connection.write(receipt)
    else:
        connection.sends.append(receipt)


def refusal(serial: int, code: TubeCode, text: str) -> Buffer:
    """The answer to a send that is refused."""
    response = SendMessageResponseB2P(
        success=False, errCode=code, errMsg=text[:TEXT_MAX] or code.name
    )
    return answer(serial, METHOD, response.SerializeToString())


def overflow(connection: TubeConnection, request: Request) -> None:
    """The log had no room for this message as long as its client waits."""
    code = TubeCode.SERVER_RECEIVE_OVERFLOW
    connection.write(refusal(request.serial, code, OVERFLOW))


def taken_back(answers: Iterable[Buffer], problem: BaseException) -> list[Buffer]:
    """What is said instead of answers when the disk did not keep the messages."""
    code, text = TubeCode.SERVICE_UNAVAILABLE, f"the message was not kept: {problem}"
    return [refusal(_SERIAL.unpack_from(each, _SERIAL_AT)[0], code, text) for each in answers]


def _who(connection: TubeConnection, sent: Send) -> Principal:
    """As whom a message is sent; AuthenticationFailed."""
    shown = AuthorizedInfo(
        visitAuthorizedToken=sent.visit_token or 0, authAuthorizedToken=sent.auth_token or ""
    )
    authentication = connection.door.authentication
    return authentication.authenticate(Role.PRODUCER, connection, sent.client_id, shown)


def _too_large(size: int, most: int) -> Refusal:
    text = f"data length over max length, allowed max length is {most}, data length is {size}"
    return Refusal(TubeCode.BAD_REQUEST, text)


def _closed(connection: TubeConnection, sent: Send) -> Refusal:
    if not connection.door.broker.rules.broker.publishes:
        return Refusal(TubeCode.SERVICE_UNAVAILABLE, "Write StoreService temporary unavailable!")
    return Refusal(TubeCode.FORBIDDEN, f"topicName {sent.topic} has been closed")
