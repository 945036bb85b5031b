# cython: annotation_typing=False, wraparound=True
"""Replies that wait for a commit: those of one loop iteration share a slot and a write.

`KafkaConnection` owns one; produce requests answer through it, and so does everything else whose
reply waits for the journal. Compiled (durable_replies.pxd adds the types), since it runs once per
small produce request; uncompiled it is plain Python. See docs/decisions/0061.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.reply_slots import ReplySlot, ReplySlots

if TYPE_CHECKING:
    from collections.abc import Callable

    from trilogue.gateway.kafka.context import CommitReply
    from trilogue.gateway.stream import Buffer, Stream
    from trilogue.gateway.transport_writer import TransportWriter
    from trilogue.log.errors import StorageFailed
    from trilogue.log.journal.window import CommitCallback


class ReplySession(Protocol):
    """The session that the replies belong to."""

    def flush(self) -> None:
        """Send every reply that is ready, from the head, as long as the peer reads."""

    def guarded(self, call: Callable[[], None], /) -> None:
        """Call, and end this connection if that fails."""

    def stop_reading(self) -> None:
        """Take no more requests until enough replies were sent."""


class CommitSlot(ReplySlot):
    """Replies that wait for the same commit, and how to replace them when it fails.

    `is_last` marks the last slot of a loop iteration: the ones before it wait for the same commit.
    """

    __slots__ = ("is_last", "problem", "replies")

    def __init__(self) -> None:
        self.ready = False  # not by ReplySlot.__init__: the call costs as much as all of this
        self.requests = 1
        self.timer = None
        self.waiting_bytes = 0
        self.problem: BaseException | None = None
        self.replies: list[CommitReply] = []
        self.is_last = False

    def render(self) -> list[Buffer] | None:
        """Return all replies in order, several of them as one buffer."""
        buffers: list[Buffer] = []
        if self.problem is None:
            for reply in self.replies:
                buffers.append(reply[0])  # noqa: PERF401 -- compiled it is as fast
        else:
            code = to_error_code(self.problem)
            for _, refuse, correlation_id, context in self.replies:
                buffers.append(refuse(correlation_id, context, code))
        return buffers if len(buffers) == 1 else [b"".join(buffers)]


class DurableReplies:
    """The commit slots of one connection."""

    __slots__ = (
        "_committed",
        "_in_flight_max",
        "_on_commit",
        "_open",
        "_session",
        "_slots",
        "_spare",
        "_waiting",
        "_writer",
    )

    def __init__(
        self,
        session: ReplySession,
        slots: ReplySlots,
        on_commit: Callable[[CommitCallback], None],
    ) -> None:
        self._session = session
        self._slots = slots
        self._on_commit = on_commit
        self._writer: TransportWriter | None = None
        self._in_flight_max = 1  # until there is a stream
        self._open: CommitSlot | None = None  # the last slot of the queue, if it is a commit slot
        self._spare: CommitSlot | None = None  # one to be used again
        self._waiting: deque[CommitSlot] = deque()
        self._committed: CommitCallback = self.committed  # bound once

    def open(self, stream: Stream) -> None:
        """Take the stream to write to, and its limits."""
        self._writer = stream.writer
        self._in_flight_max = stream.limits.in_flight_requests

    def close(self) -> None:
        """Refer to nothing of this any more: the connection is closed."""
        self._committed = _ignore_commit

    def close_slot(self) -> None:
        """Use another slot from here on: a reply of another kind was queued."""
        self._open = None

    def add(self, reply: CommitReply) -> None:
        """Queue a reply that leaves when the journal has committed."""
        slots = self._slots
        slot = self._open
        if slot is None:
            slot = self._spare
            if slot is None:
                slot = CommitSlot()
            else:
                self._spare = None
            self._open = slot
            slots.queue.append(slot)
            self._waiting.append(slot)
        else:
            slot.requests += 1
        slots.in_flight += 1
        if slots.in_flight >= self._in_flight_max:
            self._session.stop_reading()
        slot.replies.append(reply)

    def end_iteration(self) -> None:
        """Register one callback for the commit of the whole iteration, and send what is ready."""
        if self._waiting:
            last = self._waiting[-1]
            if not last.is_last:
                last.is_last = True
                self._open = None
                self._on_commit(self._committed)
        queue = self._slots.queue
        if queue and queue[0].ready:
            self._session.flush()

    def committed(self, problem: StorageFailed | None) -> None:
        """Send the replies of the oldest iteration: it is durable, or never will be."""
        slots = self._slots
        if slots.is_gone:
            return
        while True:
            slot = self._waiting.popleft()
            slot.problem = problem
            slot.ready = True
            if slot.is_last:
                break
        queue, writer, replies = slots.queue, self._writer, slot.replies
        if (
            writer is not None
            and len(queue) == 1
            and len(replies) == 1
            and problem is None
            and not (writer.is_paused or slots.is_full or slots.is_draining)
        ):
            # By far the most common case, and the same as what `flush` would do.
            queue.popleft()
            slots.in_flight -= 1
            writer.send_one(replies.pop()[0])
            if slot.timer is not None:
                slot.timer.stop()
                slot.timer = None
            slot.ready = slot.is_last = False
            self._spare = slot
        elif queue[0].ready:
            self._session.guarded(self._session.flush)


def _ignore_commit(_problem: StorageFailed | None) -> None:
    """Do nothing: the connection is closed."""
