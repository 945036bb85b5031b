"""The answer to GET_LAST_MESSAGE_ID, kept for as long as it is true.

Readers send the request before each message, and it costs reads of the log: of the last entry, and
of the one at the position of the subscription. As long as neither the log nor the position changed,
only the number of the request differs. Compaction changes neither and may remove the last entry:
so an answer is kept for a second at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from trilogue.gateway.pulsar.message_ids import unsigned
from trilogue.wire.pulsar.frame import encode_command
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trilogue.broker.topics.partition import Partition
    from trilogue.gateway.pulsar.entry_reader import DispatchEntry

KEPT_S: Final = 1.0


class AnsweredConnection(Protocol):
    """The connection of a request for it."""

    is_gone: bool

    def begin_request(self) -> None:
        """Count a request that is in flight."""

    def end_request(self) -> None:
        """Count a request that is answered."""

    def write(self, buffer: bytes) -> None:
        """Send a frame."""

    def send_error(self, request_id: int, problem: BaseException) -> None:
        """Send ERROR."""


class LastMessage:
    """The last message of a partition, and the position of one subscription.

    Requests that come while it is read wait for it: they would read the same.
    """

    __slots__ = ("_answer", "_made_s", "_partition", "_range", "_waiting", "mark")

    def __init__(self, partition: Partition, mark: int, now_s: float) -> None:
        self.mark = mark  # of the subscription
        self._partition = partition
        self._range = _readable_range(partition)
        self._made_s = now_s
        self._answer: BaseCommand | None = None  # it is being read
        self._waiting: list[tuple[AnsweredConnection, int]] = []

    def holds(self, mark: int, now_s: float) -> bool:
        """Return whether it is still true, with the subscription's mark there."""
        return (
            (self._answer is None or now_s - self._made_s < KEPT_S)
            and self.mark == mark
            and self._range == _readable_range(self._partition)
        )

    def send(self, connection: AnsweredConnection, request_id: int) -> None:
        """Answer a request with it, once it is known."""
        if self._answer is None:
            connection.begin_request()
            self._waiting.append((connection, request_id))
        else:
            self._answer.getLastMessageIdResponse.request_id = request_id
            connection.write(encode_command(self._answer))

    def set(self, entry: DispatchEntry | None, index: int, mark_delete: int) -> None:
        """Set the last entry, -1 everywhere if there is none, and the position.

        `index` is that of the partition in its name.
        """
        partition_id = self._partition.partition_id
        ledger_id, entry_id, batch_index = -1, -1, -1
        if entry is not None:
            ledger_id, entry_id = partition_id, entry.base
            batch_index = entry.end - entry.base - 1 if entry.is_batch else -1
        self._answer = BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE)
        answer = self._answer.getLastMessageIdResponse
        answer.last_message_id.ledgerId = unsigned(ledger_id)
        answer.last_message_id.entryId = unsigned(entry_id)
        answer.last_message_id.partition = index
        answer.last_message_id.batch_index = batch_index
        answer.consumer_mark_delete_position.ledgerId = partition_id
        answer.consumer_mark_delete_position.entryId = unsigned(mark_delete)
        for connection, request_id in self._end_waiting():
            self.send(connection, request_id)

    def fail(self, problem: BaseException) -> None:
        """Refuse the requests that wait for it: it could not be read."""
        for connection, request_id in self._end_waiting():
            connection.send_error(request_id, problem)

    def _end_waiting(self) -> Iterator[tuple[AnsweredConnection, int]]:
        waiting, self._waiting = self._waiting, []
        for connection, request_id in waiting:
            connection.end_request()
            if not connection.is_gone:
                yield connection, request_id


def _readable_range(partition: Partition) -> tuple[int, int]:
    return partition.log.start_offset, partition.log.stable_end
