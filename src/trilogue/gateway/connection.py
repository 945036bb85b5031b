"""A connection whose answers may leave in any order: gathered writes, one commit per step.

    frame ──► handler ──► write(frame) ──────────────► gathered, leaves at the end of the step
                    └──► receipts.append(receipt) ──► leaves when the journal has committed the step

A step is what one connection does in one loop iteration. There is no queue of answers as in
`reply_queue.py`: an answer names its request. Only the receipts of producers keep their order. A
receipt is encoded when its message is appended, waits in the list of its step (a commit group), and
leaves when the journal has committed what the step appended (docs/decisions/0035).

Frames that handlers write are gathered and leave with one write, at the end of the step or of the
callback. A peer that does not read them is not read from, and while `write_paused` is set no
messages are sent to it; `resume_sending` is called when it reads again.

This class knows no protocol; `pulsar/connection.py` and `tubemq/connection.py` derive from it: they
take frames, setting `in_step`, and replace receipts after a failed commit.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from trilogue.broker.access.authorizer import Operation, Principal, ResourceKind
from trilogue.gateway.quota_wait import ByteQuotas
from trilogue.gateway.stream import STOP_BROKER, STOP_SESSION, STOP_TURN, Buffer, Close
from trilogue.gateway.transport_writer import ReceiptGroups

if TYPE_CHECKING:
    from trilogue.gateway.dependencies import ProtocolGateway
    from trilogue.gateway.stream import Stream

log = logging.getLogger(__name__)

GATHERED_MAX = 64 << 10  # smaller writes are joined: one system call, one copy


class InFlightLimits(msgspec.Struct, frozen=True):
    """How much of one connection may be in flight."""

    receipts: int = 5_000  # not durable yet
    requests: int = 1_000  # being worked on, or held until they can be answered
    request_bytes: int = 8 << 20  # of their frames


class MultiplexedConnection(ABC):
    """One client: frames in, frames out."""

    gateway: ProtocolGateway
    stream: Stream
    logged_events: tuple[str, ...] = ()  # see connection_log.py

    def __init__(self, gateway: ProtocolGateway, bounds: InFlightLimits) -> None:
        self.gateway = gateway
        self.bounds = bounds
        self.access = gateway.make_access("")
        self.is_gone = False
        self.groups = ReceiptGroups(
            self, gateway.journal.on_commit, gateway.latencies.start_group, bounds.receipts
        )
        self.receipts = self.groups.receipts  # of the commit group that fills
        self.gathered: list[Buffer] = []  # frames that leave with one write
        self.in_step = False
        self._out_bytes = 0
        self._flush_due = False
        self._requests = self._requests_bytes = 0  # in flight, and their bytes
        self._draining = self._opened = False
        self._byte_quotas: ByteQuotas | None = None  # once a quota is set
        self._counts_gathered = False  # what was gathered is counted as unsent
        self._sent_of_first = 0  # bytes: the first buffer of it is the rest of a larger one

    # ---- what the stream calls

    def opened(self, stream: Stream) -> None:
        """Keep the stream to answer to."""
        self.stream = stream
        self.groups.open(stream.writer)
        self.access.host = stream.peer[0]
        self._opened = True
        if self._draining:
            self.drain()

    def end_iteration(self) -> None:
        """End the step: one commit for all its messages, one write for its frames."""
        self.in_step = False
        if self.receipts:
            self.groups.commit()
        if self.gathered:
            self.flush()

    def writable(self) -> None:
        """The peer reads again: send what waits, then let handlers send more."""
        self._send_out()
        self.resume_sending()

    @property
    def is_draining(self) -> bool:
        """Whether the server takes no new requests and answers the held ones."""
        return self._draining

    @property
    def busy(self) -> bool:
        """Whether the peer waits for answers."""
        return self.groups.in_flight > 0 or self._requests > 0

    def closed(self) -> None:
        """The connection is closed: drop what would have left."""
        self.is_gone = True
        self.gateway.request_memory.forget(self)
        self.gathered.clear()
        self.groups.close()
        if self._byte_quotas is not None:
            self._byte_quotas.close()
            self._byte_quotas = None

    @property
    def principal(self) -> Principal:
        """The identity of the client."""
        return self.access.principal

    def end_session(self, reason: str) -> None:
        """Close: the client's user was deleted or has another secret."""
        if not self.is_gone:
            self.stream.abort("connection.session_ended", problem=reason)

    # ---- what a protocol overrides

    @abstractmethod
    def replace_receipts(self, receipts: list[Buffer], problem: BaseException) -> list[Buffer]:
        """Return the frames in place of receipts whose messages are not durable."""

    def resume_sending(self) -> None:
        """Let consumers and others go on that wait for the peer to read."""

    def finish_draining(self) -> None:
        """The server drains, and what was in flight is durable: close."""
        self.flush_and_close()

    # ---- frames out

    @property
    def write_paused(self) -> bool:
        """Whether no messages should be sent now: the peer has enough to read, or waits."""
        stream = self.stream
        return (
            stream.write_paused
            or self._out_bytes >= stream.limits.write_high_bytes
            or (self._byte_quotas is not None and self._byte_quotas.fetching.left_s > 0)
        )

    def write(self, buffer: Buffer) -> None:
        """Send bytes of frames; they must not be changed afterwards."""
        self.gathered.append(buffer)
        self._out_bytes += len(buffer)
        if not self.in_step:
            self._flush_later()

    def write_all(self, buffers: Sequence[Buffer]) -> None:
        """Send several."""
        self.gathered += buffers
        self._out_bytes += sum(map(len, buffers))
        if not self.in_step:
            self._flush_later()

    def _flush_later(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self.gateway.call_soon(self.flush)

    def flush(self) -> None:
        """Send what was gathered, if the peer reads."""
        was_full = self._out_bytes >= self.stream.limits.write_high_bytes
        self._send_out()
        if was_full:
            self.resume_sending()

    def _send_out(self) -> None:
        self._flush_due = False
        stream = self.stream
        while self.gathered and not self.is_gone:
            if stream.write_paused:
                self._counts_gathered = True
                stream.unsent.set_gathered(self._out_bytes + self._sent_of_first)
                return
            out, size = self.gathered, self._out_bytes
            if size > 2 * stream.limits.write_high_bytes:
                out = self._take_part(stream.limits.write_high_bytes)
            else:
                self.gathered, self._out_bytes = [], 0
                if size <= GATHERED_MAX or self._sent_of_first:
                    out = [b"".join(out)]
                self._sent_of_first = 0
            stream.send(out)
        if self._counts_gathered:
            self._counts_gathered = False
            stream.unsent.set_gathered(0)

    def _take_part(self, size: int) -> list[Buffer]:
        """Return the first bytes of what was gathered, about `size`, and keep the rest.

        The transport would keep a large message until its last byte is sent, and count what is
        left; so it gets a part at a time, and the last part of a message as a copy.
        """
        part: list[Buffer] = []
        left = size
        taken = 0
        while left > 0:
            buffer = self.gathered[taken]
            if len(buffer) > left:
                view = memoryview(buffer)
                part.append(view[:left])
                self.gathered[taken] = view[left:]
                self._sent_of_first += left
                break
            part.append(bytes(buffer) if self._sent_of_first else buffer)
            self._sent_of_first = 0
            left -= len(buffer)
            taken += 1
        del self.gathered[:taken]
        self._out_bytes -= sum(map(len, part))
        return part

    def flush_if_large(self) -> None:
        """In the middle of a step: send if much was gathered, to learn whether the peer reads."""
        if self._out_bytes >= self.stream.limits.write_high_bytes:
            self._send_out()

    # ---- what is durable

    def send_receipts(self, receipts: list[Buffer]) -> None:
        """Send receipts behind the frames that were gathered, or with the others of a step."""
        for receipt in receipts:
            self.write(receipt)
        if not self.in_step:
            self.flush()

    def on_commit(self, callback: Callable[[BaseException | None], None]) -> None:
        """Call when all that was appended so far is durable, or never will be.

        After the receipts of earlier messages; not at all if the connection is closed by then.
        """
        self.groups.commit()
        self.gateway.journal.on_commit(lambda problem: self.guarded(lambda: callback(problem)))

    # ---- quotas; callers look whether there are any (`Quotas.active`)

    @property
    def byte_quotas(self) -> ByteQuotas:
        """What counts the bytes of the connection's clients."""
        if self._byte_quotas is None:
            gateway = self.gateway
            self._byte_quotas = ByteQuotas(
                gateway.quotas,
                gateway.loop,
                self.stream,
                lambda: self.guarded(self.resume_sending),
            )
        return self._byte_quotas

    # ---- help for handlers

    def is_allowed(self, operation: Operation, kind: ResourceKind, name: object) -> bool:
        """Whether the client may do this to the resource of this canonical name."""
        return self.access.is_allowed(operation, kind, str(name))

    def can_see(self, operation: Operation, kind: ResourceKind, name: object) -> bool:
        """The same for lists, which leave out what the client may not see."""
        return self.access.can_see(operation, kind, str(name))

    def guarded(self, call: Callable[[], None]) -> None:
        """Run a callback of another part; its failure ends this connection only."""
        if not self.is_gone:
            self.stream.guarded(call)

    def wait_for_log_space(self) -> None:
        """Take no more frames until the log has space; the current frame is not taken."""
        self.stream.stop(STOP_BROKER)
        self.gateway.wait_for_relief(self)

    def spawn(self, work: Coroutine[Any, Any, None], size: int = 0) -> None:
        """Run a request to its end, whether or not the client still waits for its answer.

        `size` is about how many bytes of the request are kept meanwhile.
        """
        self.begin_request(size)
        self.gateway.request_memory.add(size)
        self.gateway.spawn(self._finish(work, size))

    def begin_request(self, size: int = 0) -> None:
        """Count a request that is in flight; `end_request` must follow."""
        bounds = self.bounds
        self._requests += 1
        self._requests_bytes += size
        if self._requests_bytes >= bounds.request_bytes or self._requests >= bounds.requests:
            self.stop_frames()

    def end_request(self, size: int = 0) -> None:
        """Count a request that is answered, and read again if there is room."""
        self._requests -= 1
        self._requests_bytes -= size
        if self.groups.is_full and not self.is_gone:
            self.resume_frames()

    def wait_for_request_memory(self) -> None:
        """Take no more frames until other requests are answered; this one is not taken."""
        self.gateway.request_memory.wait(self)
        self.stream.stop(STOP_TURN)

    def resume_requests(self) -> None:
        """Offer again the frame that was not taken."""
        if not self.is_gone:
            self.stream.go_on(STOP_TURN)

    async def _finish(self, work: Coroutine[Any, Any, None], size: int) -> None:
        try:
            await work
        except Close as order:
            self.stream.abort(order.reason, **order.fields)
        except Exception:
            log.exception("request.failed", extra={"address": self.stream.peer[0]})
            self.stream.abort("connection.cut")
        finally:
            self.end_request(size)
            self.gateway.request_memory.add(-size)

    # ---- life

    def flush_and_close(self) -> None:
        """Send what was gathered and close, in order."""
        if self.is_gone:
            return
        if self.gathered:
            out, self.gathered, self._out_bytes = self.gathered, [], 0
            self.stream.send(out)
        self.stream.close()

    def drain(self) -> None:
        """Take no more frames, confirm what is in flight, then close."""
        self._draining = True
        if not self._opened or self.is_gone:
            return
        self.stream.stop(STOP_SESSION)
        self.on_commit(lambda _: self.finish_draining())

    def stop_frames(self) -> None:
        """Take no more frames: too much is in flight."""
        self.groups.is_full = True
        self.stream.stop(STOP_SESSION)

    def resume_frames(self) -> None:
        """Take frames again, if there is room."""
        bounds = self.bounds
        if (
            not self._draining
            and self.groups.in_flight <= bounds.receipts // 2
            and self._requests <= bounds.requests // 2
            and self._requests_bytes <= bounds.request_bytes // 2
        ):
            self.groups.is_full = False
            self.stream.go_on(STOP_SESSION)
