"""Sends what the accumulator holds: partition -> node -> one Produce with all ready batches.

In each round every node that may get a request gets one, with a batch of each of its partitions
that has one ready (as in Java: <partition, deque of batches> becomes <node, list of batches>).
There is no thread and no task for it: a batch that is ready or a node that is free schedules a
round in the next loop iteration.

What is refused or lost is sent again where that makes sense, under the same sequence numbers.
Three answers are about these numbers (KIP-360):

    45 OUT_OF_ORDER_SEQUENCE_NUMBER  something before it is missing: its turn comes again. If
                                     nothing is, the server has lost count: a new epoch from 0
    59 UNKNOWN_PRODUCER_ID           the server has forgotten us: likewise
    46 DUPLICATE_SEQUENCE_NUMBER     it is stored, but the server no longer knows where
"""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Any, Final

from trilogue.client.deadline_timer import DeadlineTimer
from trilogue.client.errors import ClientError, ConnectionLost, ServerUnreachable, Unsupported
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.errors import KafkaError, TimedOut, raise_for_code
from trilogue.client.kafka.leader_cache import LeaderCache
from trilogue.client.kafka.options import Acks, Compression, ProducerOptions
from trilogue.client.kafka.producer.accumulator import Accumulator, PartitionQueue
from trilogue.client.kafka.producer.batch import (
    NO_IDENTITY,
    UNKNOWN_OFFSET,
    ProducerBatch,
    ProducerIdentity,
)
from trilogue.client.tasks import BackgroundTasks
from trilogue.wire.errors import WireError
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from trilogue.wire.kafka.transactions.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from trilogue.client.kafka.producer.transactions import TransactionManager

log = logging.getLogger("trilogue.client.kafka")
PRODUCE: Final = 0
BY_NAME: Final = 12
TRANSACTIONAL_NEWEST: Final = 11
"""Newer versions of Produce add partitions to a transaction by themselves."""
BATCHES_SINCE, ZSTD_SINCE, CLIENT_WAITS_SINCE = 3, 7, 6
"""Versions of Produce: record batches; zstd; where the client keeps the throttle time (KIP-219)."""
MOVED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
SEQUENCE_ERRORS: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
)
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
FATAL_ERRORS: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
LONGEST_PAUSE_S: Final = 1.0


class NodeState:
    """The state of sending to one node."""

    __slots__ = ("in_flight", "is_connecting", "not_before")

    def __init__(self) -> None:
        self.in_flight = 0
        self.is_connecting = False
        self.not_before = 0.0


class Sender:
    """The requests of one producer."""

    def __init__(
        self,
        cluster: KafkaCluster,
        accumulator: Accumulator,
        options: ProducerOptions,
        lane: str,
        transactions: TransactionManager | None = None,
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._options = options
        self._lane = lane
        self._loop = asyncio.get_running_loop()
        self.tasks = BackgroundTasks(self._on_error)
        self.identity = NO_IDENTITY
        self.flushes = 0
        """How many wait for everything to be sent: then nothing lingers."""
        self._ready: dict[PartitionQueue, None] = {}
        self._paused: dict[PartitionQueue, float] = {}
        self._nodes: dict[int, NodeState] = {}
        self._leaders = LeaderCache(
            cluster, self.tasks, create=options.create_topics, pause_s=options.retry_pause_s,
            needed=self._waiting, on_learned=self.wake, on_error=self._on_metadata_error,
        )  # fmt: skip
        self._transactions = transactions
        self._is_identifying = self._is_adding = False
        self._is_woken = False
        self._timer = DeadlineTimer(self._pump, self._on_error)
        self._closed = False

    # When to send.

    def ready(self, queue: PartitionQueue) -> None:
        """A queue may have something to send."""
        self._ready[queue] = None
        self.wake()

    def on_linger_start(self) -> None:
        """A batch has begun to linger."""
        due = self._accumulator.next_linger_end
        if due is not None:
            self._timer.schedule(due)

    def wake(self) -> None:
        """Look in the loop's next turn at what can be sent."""
        if not self._is_woken and not self._closed:
            self._is_woken = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_woken = False
        if self._closed:
            return
        now = self._loop.time()
        try:
            self._expire(now)
            for queue in self._accumulator.lingered(now):
                self._ready[queue] = None
            for queue in [queue for queue, until in self._paused.items() if until <= now]:
                del self._paused[queue]
                self._ready[queue] = None
            if self._ready and self._has_identity():
                while self._ready and self._send_round(now):
                    pass
        except Exception as problem:
            log.exception("kafka.sender_failed")
            self._on_error(problem)
        finally:
            self._set_timer(now)

    def _expire(self, now: float) -> None:
        """Fail the messages whose delivery time-out is over."""
        for queue, batch in list(self._accumulator.expired(now)):
            if batch in queue.in_flight:
                if self._transactions is not None:
                    self._transactions.fail(self._expiry_error(batch))
                batch.fail(self._expiry_error(batch))  # its memory is free when its answer has come
            else:
                self._fail(queue, batch, self._expiry_error(batch))

    def _expiry_error(self, batch: ProducerBatch) -> TimedOut:
        """The error of a batch whose delivery time-out is over."""
        about = f"{batch.topic}-{batch.partition}: not stored within the delivery time-out"
        try:
            self._cluster.check_reachable(self._options.delivery_timeout_s)
        except ServerUnreachable as unreachable:
            return ServerUnreachable(f"{about}: {unreachable}")
        return TimedOut(f"{about}: {batch.problem}" if batch.problem is not None else about)

    def _on_error(self, problem: Exception) -> None:
        """Fail every message that waits: an unexpected error stopped the sender."""
        if not self._closed:
            self._fail_all(ClientError(f"the producer failed: {problem!r}"))

    def _set_timer(self, now: float) -> None:
        times = [*self._paused.values()]
        times += [node.not_before for node in self._nodes.values() if node.not_before > now]
        for time in (self._accumulator.next_linger_end, self._accumulator.next_expiry):
            if time is not None:
                times.append(time)
        if times:
            self._timer.schedule(max(now, min(times)))

    # A round: one request for each node that may get one.

    def _send_round(self, now: float) -> bool:
        ready: list[PartitionQueue] = []
        flushes, limit = self.flushes > 0, self._options.max_in_flight
        used_up = False
        for queue in list(self._ready):
            if not queue.is_ready(now, limit, flushes=flushes):
                del self._ready[queue]  # an event or the timer makes it ready again
                if queue.batches and queue.batches[0].not_before > now:
                    self._paused[queue] = queue.batches[0].not_before
            elif queue.has_exhausted(self.identity):
                used_up = True
            else:
                ready.append(queue)
        if used_up:  # no batch is sent without an identity
            self.identity = NO_IDENTITY
            self._has_identity()
            return False
        sent = False
        for number, queues in self._group_by_leader(ready).items():
            connection = self._free_connection(number, now)
            if connection is not None:
                sent = self._send(number, connection, queues) or sent
        return sent

    def _group_by_leader(self, queues: list[PartitionQueue]) -> dict[int, list[PartitionQueue]]:
        """Return the queues that may be sent to each node now."""
        by_node: dict[int, list[PartitionQueue]] = {}
        missing: list[PartitionQueue] = []
        for queue in queues:
            if self._transactions and not self._transactions.has(queue.topic, queue.partition):
                missing.append(queue)
                continue
            leader = self._leaders.find_leader(queue.topic, queue.partition)
            if leader is not None:
                by_node.setdefault(leader, []).append(queue)
        if missing and not self._is_adding:
            self._is_adding = True
            self.tasks.spawn(self._add_to_transaction(missing))
        return by_node

    async def _add_to_transaction(self, queues: list[PartitionQueue]) -> None:
        """Add partitions to the transaction before anything is sent to them."""
        assert self._transactions is not None
        try:
            await self._transactions.add_partitions(
                (queue.topic, queue.partition) for queue in queues
            )
        except ClientError as problem:
            for queue in queues:
                self._fail_queue(queue, problem)
        finally:
            self._is_adding = False
        self.wake()

    def _on_metadata_error(self, topic: str, problem: KafkaError) -> None:
        if problem.error in FATAL_ERRORS:
            self._fail_all(problem, topic)

    def _waiting(self, topic: str) -> list[int]:
        """The partitions of a topic that something waits for."""
        return [queue.partition for queue in self._ready if queue.topic == topic]

    def _free_connection(self, number: int, now: float) -> KafkaConnection | None:
        """The connection to a node, if it may get one more request now."""
        node = self._nodes.get(number)
        if node is None:
            node = self._nodes[number] = NodeState()
        if node.in_flight >= self._options.max_in_flight or node.not_before > now:
            return None
        connection = self._cluster.peek(number, self._lane)
        if connection is None:
            if not node.is_connecting:
                node.is_connecting = True
                self.tasks.spawn(self._connect(number, node))
            return None
        if connection.is_backed_up and not node.is_connecting:
            node.is_connecting = True
            self.tasks.spawn(self._wait_for_room(connection, node))
        return None if connection.is_backed_up else connection

    async def _connect(self, number: int, node: NodeState) -> None:
        try:
            await self._cluster.node(number, self._lane)
        except ClientError:
            node.not_before = self._loop.time() + self._options.retry_pause_s
            for queue in self._ready:  # the partitions may have another leader by now
                self._cluster.invalidate_leader(queue.topic, queue.partition)
        finally:
            node.is_connecting = False
        self.wake()

    async def _wait_for_room(self, connection: KafkaConnection, node: NodeState) -> None:
        try:
            await connection.drained()
        finally:
            node.is_connecting = False
        self.wake()

    def _send(self, number: int, connection: KafkaConnection, queues: list[PartitionQueue]) -> bool:
        """Send one request with the first batch of each queue, as far as they fit."""
        version = self._version(connection)
        if isinstance(version, Unsupported):
            for queue in queues:
                self._fail_queue(queue, version)
            return False
        sent = self._take_batches(queues)
        if not sent:
            return False
        try:
            request = self._request(sent)
            if self._options.acks is Acks.NONE:
                connection.write(PRODUCE, version, request)
                for queue, batch in sent:
                    self._succeed(queue, batch, UNKNOWN_OFFSET, -1)
                return True
            answer = connection.start(PRODUCE, version, request, self._cluster.timeout_s)
        except ConnectionLost as lost:
            self._lost(sent, lost)
            return False
        except Exception as problem:
            log.exception("kafka.request_failed")
            failure = ClientError(f"the request could not be sent: {problem!r}")
            for queue, batch in sent:
                self._fail(queue, batch, failure)
            return False
        self._nodes[number].in_flight += 1
        answer.add_done_callback(functools.partial(self._answered, number, sent, version))
        return True

    def _take_batches(
        self, queues: list[PartitionQueue]
    ) -> list[tuple[PartitionQueue, ProducerBatch]]:
        """The first batch of each queue, encoded, as many as fit into one request."""
        sent: list[tuple[PartitionQueue, ProducerBatch]] = []
        size, limit = 0, self._options.max_request_bytes
        for queue in queues:
            first = queue.batches[0]
            if sent and size + first.size > limit:
                break
            size += first.size
            try:
                sent.append((queue, queue.take_batch(self.identity, self._options.compression)))
                if not queue.batches:
                    self._ready.pop(queue, None)
            except Exception as problem:
                log.exception("kafka.batch_failed")
                failure = ClientError(f"the batch could not be encoded: {problem!r}")
                if first in queue.in_flight:
                    self._fail(queue, first, failure)
                else:
                    self._fail_queue(queue, failure)
        return sent

    def _version(self, connection: KafkaConnection) -> int | Unsupported:
        try:
            newest = BY_NAME if self._transactions is None else TRANSACTIONAL_NEWEST
            version = connection.version(PRODUCE, newest)
        except Unsupported as problem:
            return problem
        if version < BATCHES_SINCE:
            return Unsupported("the server is older than 0.11: it takes no record batches")
        if self._options.compression is Compression.ZSTD and version < ZSTD_SINCE:
            return Unsupported("the server is older than 2.1: it takes no zstd")
        return version

    def _request(self, sent: list[tuple[PartitionQueue, ProducerBatch]]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for queue, batch in sent:
            assert batch.data is not None
            topics.setdefault(queue.topic, []).append(
                PartitionProduceData(index=queue.partition, records=[batch.data])
            )
        return ProduceRequest(
            transactional_id=self._options.transactional_id,
            acks=self._options.acks,
            timeout_ms=int(self._cluster.timeout_s * 1000),
            topic_data=[
                TopicProduceData(name=topic, partition_data=rows) for topic, rows in topics.items()
            ],
        )

    # What becomes of it.

    def _answered(
        self,
        number: int,
        sent: list[tuple[PartitionQueue, ProducerBatch]],
        version: int,
        answer: asyncio.Future[Any],
    ) -> None:
        node = self._nodes[number]
        node.in_flight -= 1
        if answer.cancelled():
            return
        problem = answer.exception()
        if self._closed:
            return
        if problem is not None:
            self._lost(sent, problem)
            return
        try:
            self._take_answer(node, sent, version, answer.result())
        except Exception as failure:
            log.exception("kafka.answer_failed")
            for queue, batch in sent:
                if batch in queue.in_flight:
                    error = ClientError(f"the answer could not be processed: {failure!r}")
                    self._fail(queue, batch, error)
        if self._ready:
            self.wake()

    def _take_answer(
        self,
        node: NodeState,
        sent: list[tuple[PartitionQueue, ProducerBatch]],
        version: int,
        response: ProduceResponse,
    ) -> None:
        if response.throttle_time_ms and version >= CLIENT_WAITS_SINCE:
            node.not_before = self._loop.time() + response.throttle_time_ms / 1000
        rows = {
            (topic.name, row.index): row
            for topic in response.responses
            for row in topic.partition_responses
        }
        for queue, batch in sent:
            row = rows.get((queue.topic, queue.partition))
            if row is None:
                self._retry(queue, batch, WireError("an answer without this partition"))
            elif not row.error_code:
                self._succeed(queue, batch, row.base_offset, row.log_append_time_ms)
            else:
                self._refused(queue, batch, row)

    def _lost(
        self, sent: list[tuple[PartitionQueue, ProducerBatch]], problem: BaseException
    ) -> None:
        """The connection broke: whether it is stored is not known."""
        for queue, batch in sent:
            self._cluster.invalidate_leader(queue.topic, queue.partition)
            self._retry(queue, batch, problem)
        self.wake()

    def _succeed(
        self, queue: PartitionQueue, batch: ProducerBatch, offset: int, append_time: int
    ) -> None:
        queue.in_flight.remove(batch)
        self._accumulator.release(batch)
        batch.succeed(offset, append_time)
        if queue.batches:
            self._ready[queue] = None

    def _refused(
        self, queue: PartitionQueue, batch: ProducerBatch, row: PartitionProduceResponse
    ) -> None:
        about = f"produce to {queue.topic}-{queue.partition}"
        problem = KafkaError(row.error_code, about, row.error_message)
        error = problem.error
        if error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER and queue.is_idempotent:
            self._succeed(queue, batch, UNKNOWN_OFFSET, -1)
        elif self._transactions is not None and error in (*TOO_LARGE, *SEQUENCE_ERRORS):
            self._fail(queue, batch, problem)  # only the coordinator gives another epoch
        elif error in TOO_LARGE and batch.count > 1:
            self._accumulator.split(queue, batch)
            self._ready[queue] = None
        elif error in SEQUENCE_ERRORS and queue.is_idempotent:
            queue.renumber = queue.renumber or queue.is_first(batch)
            self._retry(queue, batch, problem)
        elif problem.retriable:
            if error in MOVED:
                self._cluster.invalidate_leader(queue.topic, queue.partition)
            self._retry(queue, batch, problem)
        else:
            self._fail(queue, batch, problem)

    def _retry(self, queue: PartitionQueue, batch: ProducerBatch, problem: BaseException) -> None:
        """Send it again in a while, if there is time left."""
        now = self._loop.time()
        batch.problem = problem
        if batch.expires_at <= now:
            self._fail(queue, batch, self._expiry_error(batch))
            return
        pause = self._options.retry_pause_s * 2 ** min(batch.attempts - 1, 10)
        batch.not_before = now + min(pause, max(LONGEST_PAUSE_S, self._options.retry_pause_s))
        queue.requeue(batch)
        self._ready[queue] = None

    def _fail(self, queue: PartitionQueue, batch: ProducerBatch, problem: Exception) -> None:
        if batch in queue.in_flight:
            queue.in_flight.remove(batch)
        self._accumulator.release(batch)
        batch.fail(problem)
        if self._transactions is not None:
            self._transactions.fail(problem)
        if queue.batches:
            self._ready[queue] = None
            self.wake()

    def _fail_queue(self, queue: PartitionQueue, problem: Exception) -> None:
        """Give up what waits in a queue."""
        batches, queue.open = list(queue.batches), None
        queue.batches.clear()
        for batch in batches:
            self._fail(queue, batch, problem)

    def give_up_unsent(self, problem: Exception) -> None:
        """Fail what waits to be sent; what is under way goes on."""
        self._fail_all(problem)

    def begin_identity(self, identity: ProducerIdentity) -> None:
        """Send under another identity from now on; nothing is under way."""
        self.identity = identity
        for queue in self._accumulator.queues.values():
            queue.identity = NO_IDENTITY

    def _fail_all(self, problem: Exception, topic: str | None = None) -> None:
        """Give up what waits, for all topics or for one."""
        for queue in self._accumulator.queues.values():
            if topic is None or queue.topic == topic:
                self._fail_queue(queue, problem)

    # Who we are.

    def _has_identity(self) -> bool:
        if self.identity is not NO_IDENTITY or not self._accumulator.is_idempotent:
            return True
        if self._transactions is not None:
            return False  # each transaction begins with an identity
        if not self._is_identifying:
            self._is_identifying = True
            self.tasks.spawn(self._identify())
        return False

    async def _identify(self) -> None:
        """Request a producer id until there is one."""
        try:
            connection = await self._cluster.any_connection()
            answer: InitProducerIdResponse = await connection.request(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
            )
            raise_for_code(answer.error_code, "producer id")
            self.identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        except Unsupported as problem:
            if self._options.idempotent:
                self._fail_all(problem)
            else:  # idempotence is not required
                self._accumulator.is_idempotent = False
                for queue in self._accumulator.queues.values():
                    queue.is_idempotent = False
        except KafkaError as problem:
            if not problem.retriable:
                self._fail_all(problem)
            await asyncio.sleep(self._options.retry_pause_s)
        except ConnectionLost:
            await asyncio.sleep(self._options.retry_pause_s)
        finally:
            self._is_identifying = False
        self.wake()

    # The end.

    async def end(self, problem: Exception) -> None:
        """Give up what is not settled, and the connections."""
        self._closed = True
        self._timer.cancel()
        await self.tasks.end()
        for queue in self._accumulator.queues.values():
            in_flight, queue.in_flight = queue.in_flight, []
            for batch in in_flight:
                self._accumulator.release(batch)
                batch.fail(problem)
            self._fail_queue(queue, problem)
        for number in self._nodes:
            connection = self._cluster.peek(number, self._lane)
            if connection is not None:
                connection.close()
