"""TubeMQ's error codes, in responses, and its Java class names, in place of responses.

A response that is SUCCESS in the envelope may have one of these error codes in its message. ERROR
and FATAL carry the name of a Java class, which the Java client instantiates: after an IOException
it closes the connection, after a StandbyException it tries the next master.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from trilogue.wire.errors import WireError


class TubeCode(IntEnum):
    """The error codes of the protocol; 405 to 408 exist in clients only."""

    SUCCESS = 200
    NOT_READY = 201
    MOVED = 301
    BAD_REQUEST = 400
    UNAUTHORIZED = 401
    CONNECT_RETURNED_NULL = 402
    FORBIDDEN = 403
    NOT_FOUND = 404
    ALL_PARTITIONS_FROZEN = 405
    NO_PARTITION_ASSIGNED = 406
    ALL_PARTITIONS_WAITING = 407
    ALL_PARTITIONS_IN_USE = 408
    PARTITION_OCCUPIED = 410
    NO_NODE = 411
    DUPLICATE_PARTITION = 412
    CERTIFICATE_FAILURE = 415
    SERVER_RECEIVE_OVERFLOW = 419
    CLIENT_SHUT_DOWN = 420
    CLIENT_TOO_OFTEN = 421
    PARTITION_NOT_SUBSCRIBABLE = 422
    PARTITION_NOT_PUBLISHABLE = 423
    OTHER_CONSUME_TYPE = 424
    OTHER_TOPICS = 425
    OTHER_FILTERS = 426
    OTHER_SESSION_KEY = 427
    OTHER_SELECT_BIG = 428
    OTHER_SOURCE_COUNT = 429
    DUPLICATE_NODE_ID = 430
    TOPIC_NOT_DEPLOYED = 431
    NULL_MESSAGE = 440
    BLANK_TOPIC = 441
    EMPTY_BODY = 442
    TOPIC_NOT_PUBLISHED = 443
    TOPIC_WITHOUT_PARTITION = 444
    TOO_LONG = 445
    GROUP_FORBIDDEN = 450
    CONSUME_SPEED_LIMIT = 452
    CONTENT_FORBIDDEN = 455
    INTERNAL_ERROR = 500
    SERVICE_UNAVAILABLE = 503
    MESSAGE_SET_NULL = 510
    UNSPECIFIED = 599


PACKAGES: Final = {1: "com.tencent.tubemq", 2: "org.apache.tubemq", 3: "org.apache.inlong.tubemq"}
"""The package of the classes, by the client's version of the protocol."""
_LATEST: Final = 3

STANDBY: Final = "corerpc.exception.StandbyException"
UNKNOWN_PROTOCOL: Final = "corerpc.exception.UnknownProtocolException"
SERVICE_STOPPING: Final = "corerpc.exception.ServiceStoppingException"
NOT_READY: Final = "corerpc.exception.ServerNotReadyException"
OVERFLOW: Final = "corerpc.exception.OverflowException"
EXCEPTION: Final = "java.lang.Exception"
WRONG_SERVICE: Final = "Service Type is invalid!"
"""The text of an EXCEPTION: the listener does not have the service of the request."""
BAD_MESSAGE: Final = "com.google.protobuf.InvalidProtocolBufferException"
BAD_ENVELOPE: Final = "java.io.EOFException"


def exception_name(name: str, version: int) -> str:
    """Return the class name that a client of this protocol version knows.

    Names of TubeMQ's own are passed without their package, as above; others are unchanged.
    """
    if not name.startswith(("corerpc.", "corebase.")):
        return name
    return f"{PACKAGES.get(version, PACKAGES[_LATEST])}.{name}"


def plain_name(name: str) -> str:
    """Return a class name of TubeMQ without its package, of any protocol version."""
    for package in PACKAGES.values():
        if name.startswith(f"{package}."):
            return name[len(package) + 1 :]
    return name


class UndecodableRequest(WireError):
    """A whole frame that is not a request: answered with FATAL, which needs these values.

    `serial` is the frame's; `exception` and `text` are those of a real server.
    """

    def __init__(self, serial: int, exception: str, text: str) -> None:
        super().__init__(f"{exception}: {text}")
        self.serial = serial
        self.exception = exception
        self.text = text
