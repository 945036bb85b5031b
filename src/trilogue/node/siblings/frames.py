"""The frames between nodes of one machine.

    frame     u32 length of the rest | u64 request id | MessagePack
    first     request id 0, `Hello` of the node that connects
    request   an id that counts up, and a `NodeRequest`
    answer    the same id, `Answer`; in any order

The nodes have one supervisor, and so one version. The socket of a node is in the directory `nodes`
of the data directory. Its path may be longer than an address of a socket may be: it is named
through an open descriptor of the directory.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec

from trilogue.broker import errors
from trilogue.broker.errors import ALL_ERRORS, BrokerError, NotOwner
from trilogue.broker.node_requests import (
    NodeReply,
    NodeRequest,
    ProducerRows,
    SubscriptionRows,
    TransactionName,
)
from trilogue.broker.promise import Promise

FRAME_MAX: Final = 8 << 20  # the outcome for 20,000 partitions and groups of 1,024 bytes each
HEAD: Final = Struct(">IQ")
_ID_SIZE: Final = 8
_CREDENTIALS: Final = Struct("3i")  # pid, uid, gid


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The node that connects. Later connections of a node have a higher (epoch, connection)."""

    node_id: int
    node_epoch: int
    connection: int


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of a request: the name of an error of the broker, or "" and what was found."""

    error: str = ""
    message: str = ""
    name: TransactionName | None = None
    subscriptions: SubscriptionRows | None = None
    producers: ProducerRows | None = None

    @property
    def found(self) -> NodeReply:
        """What was found, if anything."""
        return self.name or self.subscriptions or self.producers


encode = msgspec.msgpack.Encoder().encode
decode_hello = msgspec.msgpack.Decoder(Hello).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
decode_request = msgspec.msgpack.Decoder(NodeRequest).decode
_ERRORS: Final = {kind.__name__: kind for kind in ALL_ERRORS}
_NOT_READY: Final = errors.NotReady.__name__


def make_frame(number: int, message: Hello | NodeRequest | Answer) -> bytes:
    """Return a frame."""
    payload = encode(message)
    return HEAD.pack(len(payload) + _ID_SIZE, number) + payload


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the next frame: its id and its MessagePack.

    Raises IncompleteReadError at the end, ValueError for an impossible length.
    """
    size, number = HEAD.unpack(await reader.readexactly(HEAD.size))
    if not _ID_SIZE <= size <= FRAME_MAX:
        raise ValueError(f"a frame of {size} bytes")
    return number, await reader.readexactly(size - _ID_SIZE)


def encode_outcome(promise: Promise[NodeReply]) -> Answer:
    """Return the answer with what was found, or with an error of the broker."""
    error = promise.error
    if error is None:
        reply = promise.result()
        if isinstance(reply, SubscriptionRows):
            return Answer(subscriptions=reply)
        if isinstance(reply, ProducerRows):
            return Answer(producers=reply)
        return Answer(name=reply)
    kind = type(error)
    return Answer(kind.__name__ if kind in _ERRORS.values() else _NOT_READY, str(error))


def decode_outcome(answer: Answer) -> BrokerError | None:
    """Return the error of an answer."""
    if not answer.error:
        return None
    kind = _ERRORS.get(answer.error, errors.NotReady)
    if kind is NotOwner or kind.__init__ is Exception.__init__:
        return kind(answer.message)
    return errors.NotReady(f"{answer.error}: {answer.message}")


@contextmanager
def socket_address(directory: Path, node_id: int) -> Iterator[str]:
    """Return the address of the socket of a node, of any length of path."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/node-{node_id}.sock"
    finally:
        os.close(descriptor)


def is_same_user(peer: socket.socket) -> bool:
    """Whether the process at the other end belongs to the user of this one."""
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return bool(uid == os.geteuid())
