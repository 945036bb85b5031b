"""The consumer: reads topics as a member of a group, or assigned partitions.

Records are fetched ahead by fetcher.py, start positions are found by position_finder.py, and the
partitions of a member come from classic_membership.py or consumer_membership.py.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from trilogue.client.errors import ClientError, TimedOut
from trilogue.client.kafka.admin.model import GroupOffset
from trilogue.client.kafka.admin.offsets import OffsetAdmin
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.consumer.fetcher import Fetcher
from trilogue.client.kafka.consumer.message import BadRecords, Message
from trilogue.client.kafka.consumer.partition_state import NO_OFFSET, PartitionState
from trilogue.client.kafka.consumer.position_finder import PositionFinder
from trilogue.client.kafka.errors import ClosedError, KafkaError, topic_error
from trilogue.client.kafka.model import OffsetAt, Partition, granted
from trilogue.client.kafka.options import ConsumerOptions, GroupProtocol
from trilogue.client.lifecycle import AsyncCloseable
from trilogue.client.retry import FIRST_CONTACT_S
from trilogue.client.tasks import BackgroundTasks
from trilogue.entry.kafka.record_batch import DECOMPRESSED_LIMIT
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from trilogue.client.kafka.consumer.group_member import GroupMember
    from trilogue.client.kafka.consumer.large_responses import LargeResponses
    from trilogue.client.kafka.consumer.offset_committer import MemberIdentity, OffsetCommitter

Listener = Callable[[list[Partition]], "Awaitable[None] | None"]
Offsets = Mapping[tuple[str, int], "int | GroupOffset"]
ERRORS_KEPT: Final = 100
"""Errors that are kept for an application that does not poll; the oldest are dropped first."""
MANY: Final = 500


class Consumer(AsyncCloseable):
    """Reads topics; made by `KafkaClient.consumer`."""

    def __init__(
        self,
        cluster: KafkaCluster,
        admin: OffsetAdmin,
        options: ConsumerOptions,
        lane: str,
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        large_responses: LargeResponses | None = None,
    ) -> None:
        self.options = options
        self.topics: frozenset[str] = frozenset()
        """What is subscribed to."""
        self.decompressed_max = DECOMPRESSED_LIMIT
        """Bytes that a batch may decompress to; `poll` raises BatchTooLarge for a larger one."""
        self._cluster = cluster
        self._admin = admin
        self._listeners = on_assigned, on_revoked, on_lost or on_revoked
        self._check_loop()
        self._loop = asyncio.get_running_loop()
        self._tasks = BackgroundTasks(self._on_task_error)
        self._failure: ClientError | None = None
        self._pattern: re.Pattern[str] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._errors: deque[Exception] = deque(maxlen=ERRORS_KEPT)
        self._given: dict[PartitionState, None] = {}
        self._polling = 0
        self._last_poll = self._loop.time()
        self._pause: asyncio.Future[None] | None = None
        self._is_rebalancing = False
        self._closing: asyncio.Task[None] | None = None
        self._fetcher = Fetcher(
            cluster, options, lane, self._tasks,
            on_fetched=self._wake, on_position_lost=self._find_positions, failed=self.report_error,
            large_responses=large_responses,
        )  # fmt: skip
        self._committer: OffsetCommitter | None = None
        if options.group:  # who reads without one loads nothing of groups
            from trilogue.client.kafka.consumer.offset_committer import OffsetCommitter

            self._committer = OffsetCommitter(cluster, options.group, f"{lane}-group")
        self._membership: GroupMember | None = None
        self._position_finder = PositionFinder(
            cluster, options, self._committer, self._fetcher.held,
            found=self._on_positions_found, failed=self.report_error, identity=lambda: None,
        )  # fmt: skip
        self._tasks.spawn(self._position_finder.run())
        if options.auto_commit_s is not None and self._committer is not None:
            self._tasks.spawn(self._commit_periodically(options.auto_commit_s))
        self._fresh: asyncio.Task[None] | None = None

    @property
    def closed(self) -> bool:
        """Whether it reads no more."""
        return self._closing is not None

    @property
    def assignment(self) -> frozenset[Partition]:
        """The partitions that it reads now."""
        return frozenset(self._fetcher.held)

    @property
    def paused(self) -> frozenset[Partition]:
        """Those of them that nothing is given of for now."""
        return frozenset(one for one, held in self._fetcher.held.items() if held.is_paused)

    @property
    def member_id(self) -> str:
        """What the group calls it; "" outside of one."""
        return "" if self._membership is None else self._membership.member_id

    # What to read.

    async def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        """Read these topics, or all that a pattern matches as a whole, as a member of the group."""
        self._check()
        if self._committer is None:
            raise ClientError("to subscribe, set `group`; without a group, assign partitions")
        if bool(topics) == (pattern is not None):
            raise ClientError("subscribe to topics, or to a pattern")
        if self._membership is None and self._fetcher.held:
            raise ClientError("partitions were assigned by hand")
        self._pattern = None if pattern is None else re.compile(pattern)
        self.topics = frozenset(topics)
        if self._pattern is not None:
            await self._match()
        if self._membership is None:
            self._membership = self._create_member(self._committer)
            self._tasks.spawn(self._membership.run())
            if topics:
                self._tasks.spawn(self._report_missing_topics(sorted(topics)))
            self._fresh = self._tasks.spawn(self._refresh_later(self._membership))
        else:
            self._membership.rejoin()

    async def _report_missing_topics(self, topics: list[str]) -> None:
        """Have the next poll raise where a topic does not exist: it would wait for ever."""
        if self.options.create_topics:
            return
        with suppress(ClientError):  # poll reports an unreachable server
            answer = await self._cluster.request_metadata(topics)
            for row in answer.topics:
                if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self.report_error(topic_error(row.error_code, row.name or ""))

    def _create_member(self, committer: OffsetCommitter) -> GroupMember:
        """A member by the group protocol of the options; the other protocol is not loaded."""
        if self.options.protocol is GroupProtocol.CLASSIC:
            from trilogue.client.kafka.consumer.classic_membership import ClassicMember

            return ClassicMember(self._cluster, self.options, committer, self)
        from trilogue.client.kafka.consumer.consumer_membership import ConsumerMember

        return ConsumerMember(self._cluster, self.options, committer, self)

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions and no others, whatever a group may do."""
        self._check()
        if self._membership is not None:
            raise ClientError("the group assigns the partitions")
        wanted = {Partition(*one) for one in partitions}
        for topic in sorted({one.topic for one in wanted}):
            there = (
                await self._cluster.topic_metadata(topic, create=self.options.create_topics)
            ).epochs
            for number in (one.number for one in wanted if one.topic == topic):
                if number not in there:
                    raise KafkaError(3, f"{topic}-{number}")
        self._drop(self.assignment - wanted)
        self._add(wanted - self.assignment)

    async def _match(self) -> None:
        """Subscribe to the topics that match by now."""
        assert self._pattern is not None
        names = await self._cluster.topic_names()
        self.topics = frozenset(name for name in names if self._pattern.fullmatch(name))

    async def _refresh_later(self, membership: GroupMember) -> None:
        """Topics come and grow: who has to know of it joins again."""
        while True:
            await asyncio.sleep(self.options.metadata_age_s)
            with suppress(ClientError):
                if self._pattern is not None:
                    before = self.topics
                    await self._match()
                    if self.topics != before:
                        membership.rejoin()
                if membership.is_leader:
                    answer = await self._cluster.request_metadata(membership.leader_topics)
                    counts = {row.name or "": len(row.partitions) for row in answer.topics}
                    membership.topics_changed(counts)

    def _add(self, partitions: Iterable[Partition]) -> None:
        for one in sorted(partitions):
            self._fetcher.held[one] = PartitionState(one)
        self._position_finder.request()

    def _drop(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            held = self._fetcher.held.pop(partition, None)
            if held is not None:
                held.clear_buffer()
                self._given.pop(held, None)
        self._fetcher.changed()  # there is room for others

    # Messages.

    async def poll(self, timeout_s: float | None = None, max_messages: int = MANY) -> list[Message]:
        """The next messages; an empty list where none came within `timeout_s`.

        A call means that the application has processed what earlier calls returned: from then on
        those messages may be committed. ServerUnreachable where no server could be reached within
        `timeout_s` (without one, within the request time-out).
        """
        self._check()
        self._on_poll()
        self._polling += 1
        limit_s = self._cluster.timeout_s if timeout_s is None else timeout_s
        until = self._loop.time() + limit_s
        try:
            while True:
                wait_s = until - self._loop.time()
                if not self._cluster.was_reached():
                    wait_s = min(wait_s, FIRST_CONTACT_S)
                try:
                    async with asyncio.timeout(wait_s):
                        return await self._next_messages(max_messages)
                except ClientError:
                    raise
                except TimeoutError:
                    self._cluster.check_reachable(wait_s)
                    if self._loop.time() < until:
                        continue
                    if timeout_s is not None:
                        return []
                    until = self._loop.time() + limit_s
        finally:
            self._polling -= 1
            self._last_poll = self._loop.time()

    async def _next_messages(self, limit: int) -> list[Message]:
        while True:
            if self._errors:
                raise self._errors.popleft()
            messages = [] if self._is_rebalancing else self._take(limit)
            if messages:
                return messages
            await self._wait()
            self._check()

    async def get(self, timeout_s: float | None = None) -> Message:
        """The next message; TimedOut where none came within `timeout_s`, and as `poll`."""
        messages = await self.poll(timeout_s, 1)
        if not messages:
            raise TimedOut(f"no message within {timeout_s:g} s")
        return messages[0]

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Message by message, until the consumer is closed."""
        while self._closing is None:
            try:
                message = await self.get()
            except ClosedError:
                return
            yield message

    def release_large(self) -> None:
        """Release batches that were decompressed, and what was received as a large response.

        What is left of them is decompressed, or fetched, again.
        """
        for held in self._fetcher.held.values():
            held.release()
        self._fetcher.release_large()

    def _on_poll(self) -> None:
        for held in self._given:
            held.consumed = held.position
        self._given.clear()
        if self._pause is not None and not self._pause.done():
            self._is_rebalancing = True
            self._pause.set_result(None)
        if self._membership is not None:
            self._membership.on_poll()

    def _take(self, limit: int) -> list[Message]:
        messages: list[Message] = []
        freed = 0
        for held in self._fetcher.held.values():
            if not held.buffer or held.is_paused:
                continue
            before = held.buffered_bytes
            try:
                messages += held.take_messages(limit - len(messages), self.decompressed_max)
            except BadRecords:
                if messages:
                    break  # these first
                raise
            freed += before - held.buffered_bytes
            self._given[held] = None
            if len(messages) >= limit:
                break
        if freed and self._fetcher.idle:
            self._fetcher.changed()
        return messages

    async def _wait(self) -> None:
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _find_positions(self) -> None:
        self._position_finder.request()

    def _on_positions_found(self) -> None:
        self._fetcher.changed()
        self._wake()

    def report_error(self, problem: Exception) -> None:
        """Keep an error for the application: its next poll raises it."""
        if not self._errors or str(self._errors[-1]) != str(problem):
            self._errors.append(problem)
        self._wake()

    def _on_task_error(self, problem: Exception) -> None:
        """A background task ended with an unexpected error: every later call raises it."""
        self._failure = ClientError(f"the consumer failed: {problem!r}")
        self._wake()

    # Positions.

    def _held(self, partition: tuple[str, int]) -> PartitionState:
        held = self._fetcher.held.get(Partition(*partition))
        if held is None:
            raise ClientError(f"{partition[0]}-{partition[1]} is not read here now")
        return held

    async def position(self, partition: tuple[str, int]) -> int:
        """The next offset of a partition, found out within the request time-out.

        ServerUnreachable or TimedOut where that is over before.
        """
        limit_s = self._cluster.timeout_s
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    self._check()
                    held = self._held(partition)
                    if held.position != NO_OFFSET:
                        return held.position
                    if self._errors:
                        raise self._errors.popleft()
                    await self._wait()
        except ClientError:
            raise
        except TimeoutError:
            self._cluster.check_reachable(limit_s)
            topic, number = partition
            raise TimedOut(f"{topic}-{number}: no position within {limit_s:g} s") from None

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Go on at an offset; also EARLIEST and LATEST."""
        held = self._held(partition)
        if offset >= 0:
            held.move_to(offset)
            self._fetcher.changed()
        else:
            held.reset_position(offset)
            self._position_finder.request()

    def seek_to_time(self, partition: tuple[str, int], time_ms: int) -> None:
        """Go on at the first message of that time or a later one; at the end where none is."""
        self._held(partition).reset_position(time_ms)
        self._position_finder.request()

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Give nothing of these for now; fetching them ends, too."""
        for one in partitions:
            self._held(one).is_paused = True
        self._fetcher.changed()  # what it has fetched of these may have kept others waiting

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Give messages of these again."""
        for one in partitions:
            self._held(one).is_paused = False
        self._fetcher.changed()
        self._wake()

    async def offsets(self, wanted: Mapping[tuple[str, int], int]) -> dict[Partition, OffsetAt]:
        """The offsets of times, of EARLIEST and LATEST, as a reader of this isolation has them."""
        return granted(await self._admin.list_offsets(wanted, isolation=self.options.isolation))

    async def lag(self) -> dict[Partition, int]:
        """How many offsets are left in each partition that is read."""
        ends = await self.offsets(dict.fromkeys(self.assignment, -1))
        return {one: ends[one].offset - await self.position(one) for one in ends}

    # Positions of the group.

    def _group(self) -> OffsetCommitter:
        if self._committer is None:
            raise ClientError("a consumer without a group has no positions to keep")
        return self._committer

    @property
    def _identity(self) -> MemberIdentity:
        from trilogue.client.kafka.consumer.offset_committer import MemberIdentity

        return MemberIdentity() if self._membership is None else self._membership.identity

    def _committing_identity(self, partitions: Iterable[Partition]) -> Callable[[], MemberIdentity]:
        """The identity for a commit of these partitions, as long as this member keeps them.

        A retry under another generation could overwrite a commit of another member; generations
        and epochs may change while the member keeps its partitions.
        """
        first = self._identity
        had = {one: self._fetcher.held.get(one) for one in partitions}

        def now() -> MemberIdentity:
            identity = self._identity
            kept = all(self._fetcher.held.get(one) is held is not None for one, held in had.items())
            if identity != first and (identity.member_id != first.member_id or not kept):
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, "commit", "lost meanwhile")
            return identity

        return now

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit the offsets after the messages that were returned, or these offsets.

        KafkaError where others have the partitions by now (ILLEGAL_GENERATION,
        UNKNOWN_MEMBER_ID) or are about to get them (REBALANCE_IN_PROGRESS).
        """
        _, positions, identity = self.positions_to_commit(offsets)
        if positions:
            await self._group().commit(positions, identity, total_s=self._cluster.timeout_s)

    def positions_to_commit(
        self, offsets: Offsets | None = None
    ) -> tuple[str, dict[Partition, GroupOffset], Callable[[], MemberIdentity]]:
        """Return what a transaction commits: the group, its positions, and who commits them."""
        self._check()
        group = self._group()
        if offsets is None:
            positions = self._positions(lambda held: held.position)
        else:
            positions = {
                Partition(*one): what if isinstance(what, GroupOffset) else GroupOffset(what)
                for one, what in offsets.items()
            }
        return group.group, positions, self._committing_identity(positions)

    def _positions(
        self, where: Callable[[PartitionState], int], some: frozenset[Partition] | None = None
    ) -> dict[Partition, GroupOffset]:
        return {
            one: GroupOffset(where(held), leader_epoch=held.epoch)
            for one, held in self._fetcher.held.items()
            if where(held) != NO_OFFSET and (some is None or one in some)
        }

    async def committed(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[Partition, GroupOffset]:
        """Where the group is; partitions it has no position in are left out."""
        self._check()
        return await self._group().committed(
            [Partition(*one) for one in partitions],
            stable=self.options.isolation == 1,
            total_s=self._cluster.timeout_s,
        )

    async def _commit_periodically(self, every_s: float) -> None:
        positions: dict[Partition, GroupOffset] = {}
        while True:
            await asyncio.sleep(every_s)
            now = self._positions(lambda held: held.consumed)
            if now and now != positions:
                with suppress(ClientError):  # the next round commits it, or its partitions are lost
                    await self._group().commit(now, self._committing_identity(now), total_s=every_s)
                    positions = now

    # As the membership sees it.

    def exceeds_max_poll(self) -> bool:
        """Whether the application has not come for more for too long."""
        return not self._polling and self._loop.time() - self._last_poll > self.options.max_poll_s

    async def pause_for_rebalance(self, wake_s: float) -> bool:
        """Wait until the application waits for more; it gets nothing until that may go on."""
        if self._polling:
            self._is_rebalancing = True
            return True
        self._pause = self._loop.create_future()
        try:
            async with asyncio.timeout(wake_s):
                await self._pause
        except TimeoutError:
            return False
        finally:
            self._pause = None
        return True

    def resume_after_rebalance(self) -> None:
        """The application may go on."""
        self._is_rebalancing = False
        self._wake()

    async def revoke(self, partitions: frozenset[Partition], *, lost: bool) -> None:
        """Read these no more."""
        _, on_revoked, on_lost = self._listeners
        if not lost and self.options.auto_commit_s is not None and self._committer is not None:
            with suppress(ClientError):
                positions = self._positions(lambda held: held.position, partitions)
                if positions:
                    total_s = self.options.heartbeat_s
                    await self._committer.commit(
                        positions, self._committing_identity(positions), total_s=total_s
                    )
        await self._call_listener(on_lost if lost else on_revoked, partitions)
        self._drop(partitions)

    async def add_assigned(self, partitions: frozenset[Partition]) -> None:
        """Read these, too."""
        self._is_rebalancing = True  # no messages before the listener may seek
        self._add(partitions)
        await self._call_listener(self._listeners[0], partitions)

    async def _call_listener(
        self, listener: Listener | None, partitions: frozenset[Partition]
    ) -> None:
        if listener is None or (not partitions and listener is not self._listeners[0]):
            return
        try:
            answer: Any = listener(sorted(partitions))
            if inspect.isawaitable(answer):
                await answer
        except Exception as problem:  # noqa: BLE001 - the application's own
            self.report_error(problem)

    # The end.

    def _check(self) -> None:
        if self._closing is not None:
            raise ClosedError("the consumer is closed")
        self._check_loop()
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Commit offsets, leave the group, close fetch sessions and connections."""
        self._check_loop()
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._wake()
        await self._tasks.end()
        if self._membership is not None:
            self._membership.on_task_cancelled()
        try:
            with suppress(TimeoutError, ClientError):
                async with asyncio.timeout(self.options.close_timeout_s):
                    await self.revoke(self.assignment, lost=False)
                    if self._membership is not None:
                        await self._membership.leave("the consumer was closed")
        finally:
            self._fetcher.end()
            if self._committer is not None:
                self._committer.close()
