# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""The way of a plain send: read, appended and answered without an object per field.

A producer sends to the same topics again and again. After the first of its sends was taken by the
handler (send.py), the next ones from the same client to that topic are appended here, if nothing is
special about them: no login, no rights to look up, no quota, no error. Every other frame goes to
`process_frame`, which does all of it from the start, so this refuses nothing and answers no error.

Compiled (send_fast_path.pxd adds the types), since it runs once per send; uncompiled it is plain
Python. See docs/decisions/0183.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import cython

from trilogue.broker.errors import BrokerError
from trilogue.entry.entry import EntryError
from trilogue.gateway.transport_writer import ReceiptGroups, TransportWriter
from trilogue.gateway.tubemq.errors import EXPECTED
from trilogue.log.pressure import LogPressure
from trilogue.wire.tubemq.errors import UndecodableRequest
from trilogue.wire.tubemq.plain_send import PlainSend
from trilogue.wire.tubemq.rpc_codec import parse_request, parse_send

if not cython.compiled:  # send_fast_path.pxd imports the compiled versions
    from trilogue.entry.tubemq.tubemq_entry import build_entry, message_id
    from trilogue.wire.tubemq.rpc_codec import encode_send_response

if TYPE_CHECKING:
    from asyncio import Future
    from collections import Counter, deque
    from collections.abc import Callable

    from trilogue.gateway.stream import Buffer
    from trilogue.gateway.tubemq.gateway_context import PublishTarget, TubeGatewayContext

_SEND = 13
_TARGETS_MAX = 64  # of one connection
_NOT_LEARNED = (UndecodableRequest, *EXPECTED)


class SendConnection(Protocol):
    """The connection, for its fast path."""

    gateway: TubeGatewayContext
    groups: ReceiptGroups
    gathered: list[Buffer]
    stopped_s: float
    waiting_reads: deque[Future[None]]

    def end_step(self) -> None:
        """End a step in which not all frames were sends, or something waits."""

    def write(self, buffer: Buffer) -> None:
        """Send, with what else the step writes."""


class SendFastPath:
    """Takes the frames of one connection to the broker."""

    __slots__ = (
        "_cluster",
        "_connection",
        "_gateway",
        "_generation",
        "_groups",
        "_has_sent",
        "_is_handled",
        "_pressure",
        "_process_frame",
        "_requests",
        "_responses",
        "_rules",
        "_sent",
        "_services",
        "_targets",
        "_writer",
    )

    def __init__(
        self,
        connection: SendConnection,
        process_frame: Callable[[memoryview], bool],
        requests: Counter[int],
        services: frozenset[int],
    ) -> None:
        self._connection = connection
        self._gateway = connection.gateway
        self._cluster = connection.gateway.broker.cluster
        self._groups: ReceiptGroups = connection.groups
        self._writer: TransportWriter | None = None  # until there is a stream
        self._has_sent = False  # whether a send of this iteration was appended here
        self._is_handled = False  # whether the handler got a frame of it
        self._responses: list[Buffer] = []  # of this iteration, to what memory acknowledges
        self._pressure: LogPressure = connection.gateway.log.pressure
        self._process_frame = process_frame
        self._requests = requests
        self._services = services
        self._sent = PlainSend()
        self._targets: dict[bytes, PublishTarget] = {}
        self._generation = -1
        self._rules = -1

    def open(self, writer: TransportWriter) -> None:
        """Keep what to write to."""
        self._writer = writer

    def close(self) -> None:
        """Refer to nothing of the connection: it is closed."""
        self._responses.clear()
        self._writer = None
        self._connection = None  # type: ignore[assignment] # no frame comes any more
        self._process_frame = _refuse_frame
        self._sent.forget()

    def take_frame(self, frame: memoryview) -> bool:
        """Process one request; False while the log has no room for its message."""
        sent = self._sent
        if not sent.read(frame):
            self._is_handled = True
            return self._process_frame(frame)
        was_appended = self._append(sent)
        sent.forget()
        if was_appended:
            return True
        self._is_handled = True
        was_taken = self._process_frame(frame)
        if was_taken and sent.names not in self._targets:
            self._learn(sent.names, frame)
        return was_taken

    def end_iteration(self) -> None:
        """End a step: of plain sends alone here, of all else by the connection."""
        connection = self._connection
        groups = self._groups
        writer = self._writer
        if writer is None:  # it is closed
            return
        responses = self._responses
        is_plain = (
            self._has_sent
            and not self._is_handled
            and not writer.is_paused
            and not groups.is_full
            and not connection.gathered
        )
        self._has_sent = self._is_handled = False
        if responses:
            if is_plain:
                writer.send_one(responses[0] if len(responses) == 1 else b"".join(responses))
                is_plain = not writer.is_paused
            else:
                for response in responses:
                    connection.write(response)
            responses.clear()
        if is_plain and groups.receipts:
            groups.commit()
            is_plain = not groups.is_full
        if not is_plain or connection.waiting_reads:
            connection.end_step()

    def _append(self, sent: PlainSend) -> bool:
        """Append the message and queue its response; False where that is for the handler."""
        target = self._find_target(sent)
        size = sent.size
        if target is None or size <= 0 or size > target.data_bytes_max:
            return False
        partitions = target.partitions
        index = sent.partition_id
        if index < 0 or index >= len(partitions):
            return False
        partition = partitions[index]
        gateway = self._gateway
        now_ms = gateway.now_ms()
        try:
            entry, header = build_entry(
                sent.data,
                sent.flag,
                sent.checksum,
                sent.address,
                sent.message_type,
                sent.message_time,
                now_ms,
            )
            plain = partition.plain
            is_stored = partition.acks_from_memory
            if is_stored:
                offset = plain.append_to_memory(entry, header, size)
            else:
                offset = plain.append_entry(entry, header, size)
        except (EntryError, BrokerError):
            return False  # the handler finds the same and answers with it
        if offset < 0:
            return False
        stored_id = message_id(partition.log.partition_id, offset)
        receipt = encode_send_response(sent.serial, stored_id, now_ms, offset)
        if is_stored:
            self._responses.append(receipt)
        else:
            self._groups.receipts.append(receipt)
        self._has_sent = True
        self._requests[_SEND] += 1
        gateway.messages_in += 1
        gateway.bytes_in += size
        return True

    def _find_target(self, sent: PlainSend) -> PublishTarget | None:
        """Return the topic of a send that needs nothing but an append, if it is one."""
        gateway = self._gateway
        connection = self._connection
        if self._generation != self._cluster.generation or self._rules != gateway.publish_rules:
            self._targets.clear()
            self._generation = self._cluster.generation
            self._rules = gateway.publish_rules
            return None
        if connection.stopped_s or sent.service not in self._services:
            return None
        if gateway.guards_sends or not gateway.authorizer.allows_all or gateway.quotas.active:
            return None
        if not self._groups.receipts and self._pressure.is_high():  # checked once per iteration
            return None
        return self._targets.get(sent.names)

    def _learn(self, names: bytes, frame: memoryview) -> None:
        """Remember the topic of a send that the handler has taken, if there is one."""
        try:
            topic = parse_send(parse_request(frame).body).topic
            target = self._gateway.find_target(topic)
        except _NOT_LEARNED:
            return
        if target.accepts_publish:
            if len(self._targets) >= _TARGETS_MAX:
                self._targets.clear()
            self._targets[names] = target


def _refuse_frame(_frame: memoryview) -> bool:
    return False
