# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""The way of the SENDs of one connection that need no frame of Python.

It takes all that is sent to non-persistent topics (non_persistent/send_turn.py). Every other frame
goes to `process_frame`, after what was sent before it.

Compiled (send_fast_path.pxd adds the types), since it runs once per SEND; uncompiled it is plain
Python. See docs/decisions/0156.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import cython

from trilogue.gateway.pulsar.services import ClientConnection

if not cython.compiled:  # send_fast_path.pxd imports the compiled versions
    from trilogue.gateway.pulsar.non_persistent.send_turn import SendTurn
    from trilogue.wire.pulsar.message_codec import SendHead

if TYPE_CHECKING:
    from collections.abc import Callable

    from trilogue.gateway.pulsar.non_persistent.producer import NonPersistentProducer
    from trilogue.gateway.pulsar.producer import Producer
    from trilogue.gateway.stream import Buffer
    from trilogue.gateway.transport_writer import TransportWriter


class SendConnection(ClientConnection, Protocol):
    """The connection, for its fast path."""

    producers: dict[int, Producer]
    non_persistent_producers: dict[int, NonPersistentProducer]
    receipts: list[Buffer]
    gathered: list[Buffer]
    has_received: bool

    def end_step(self) -> None:
        """End a step in which not all frames were taken here, or something waits."""


class SendFastPath:
    """Takes the frames of one connection to non-persistent topics, and to its handlers."""

    __slots__ = (
        "_connection",
        "_head",
        "_is_handled",
        "_others",
        "_process_frame",
        "_producers",
        "_turn",
        "_writer",
    )

    def __init__(
        self, connection: SendConnection, process_frame: Callable[[memoryview], bool]
    ) -> None:
        self._connection: SendConnection | None = connection
        self._head = SendHead()
        self._is_handled = False  # whether the handler got a frame of this iteration
        self._producers: dict[int, Producer] = connection.producers
        self._others: dict[int, NonPersistentProducer] = connection.non_persistent_producers
        self._process_frame = process_frame
        self._turn = SendTurn(connection)
        self._writer: TransportWriter | None = None  # until there is a stream

    def open(self, writer: TransportWriter) -> None:
        """Keep what to write to."""
        self._writer = writer

    def close(self) -> None:
        """Refer to nothing of the connection: it is closed."""
        self._turn.close()
        self._writer = None
        self._connection = None
        self._process_frame = _refuse_frame

    def take_frame(self, frame: memoryview) -> bool:
        """Process one frame; False while the log has no room for its message."""
        head, turn = self._head, self._turn
        if head.read(frame) and self._begin(head.producer_id):
            turn.take(head, frame)
            if turn.is_limited:
                turn.end(None)
                self._is_handled = True
            return True
        if turn.is_open:
            turn.end(None)
        self._is_handled = True
        return self._process_frame(frame)

    def end_iteration(self) -> None:
        """End a step: one of non-persistent topics alone here, others by the connection."""
        connection = self._connection
        if connection is None:  # it is closed
            return
        turn = self._turn
        if turn.is_open:
            turn.end(self._writer)
        if self._is_handled or connection.gathered or connection.receipts:
            self._is_handled = False
            connection.end_step()

    def _begin(self, producer_id: int) -> bool:
        """Whether a producer is one of a non-persistent topic; then the turn takes its messages."""
        turn = self._turn
        if turn.is_open:
            if turn.producer_id == producer_id:
                return True
            turn.end(None)
            self._is_handled = True
        found = self._others.get(producer_id)
        if found is None or not found.ready:
            return False
        stored = self._producers.get(producer_id)
        connection = self._connection
        if connection is None or (stored is not None and stored.ready):
            return False
        connection.has_received = True
        turn.begin(found)
        return True


def _refuse_frame(_frame: memoryview) -> bool:
    return False
