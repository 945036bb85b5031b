"""What the application reads with: topics of a group, or partitions of its own choice.

What is read ahead comes from fetcher.py, where to begin from locating.py, and which partitions are
ours, in a group, from membership.py. Here is what the application sees, and what it was given.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from trilogue.client.closing import Closing
from trilogue.client.errors import ClientError
from trilogue.client.kafka.admin.offsets import Offsets as Asked
from trilogue.client.kafka.admin.shapes import GroupOffset
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.errors import ClosedError, KafkaError
from trilogue.client.kafka.fetcher import Fetcher
from trilogue.client.kafka.held import NO_OFFSET, Held
from trilogue.client.kafka.locating import Locating
from trilogue.client.kafka.message import BadRecords, Message
from trilogue.client.kafka.options import ConsumerOptions
from trilogue.client.kafka.shapes import OffsetAt, Partition, granted
from trilogue.client.tasks import Tasks
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from trilogue.client.kafka.committing import Committing, Identity
    from trilogue.client.kafka.member import GroupMember

Listener = Callable[[list[Partition]], "Awaitable[None] | None"]
Offsets = Mapping[tuple[str, int], "int | GroupOffset"]
TROUBLES: Final = 100
"""Problems that are kept for an application that does not ask; the oldest go first."""
MANY: Final = 500


class Consumer(Closing):
    """Reads topics; made by `KafkaClient.consumer`."""

    def __init__(
        self,
        cluster: KafkaCluster,
        admin: Asked,
        options: ConsumerOptions,
        lane: str,
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        self.options = options
        self.topics: frozenset[str] = frozenset()
        """What is subscribed to."""
        self._cluster = cluster
        self._admin = admin
        self._listeners = on_assigned, on_revoked, on_lost or on_revoked
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()
        self._pattern: re.Pattern[str] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._troubles: deque[Exception] = deque(maxlen=TROUBLES)
        self._given: dict[Held, None] = {}
        self._polling = 0
        self._last_poll = self._loop.time()
        self._pause: asyncio.Future[None] | None = None
        self._is_rebalancing = False
        self._closing: asyncio.Task[None] | None = None
        self._fetcher = Fetcher(
            cluster, options, lane, self._tasks,
            news=self._wake, lost=self._locate, failed=self.failed,
        )  # fmt: skip
        self._committing: Committing | None = None
        if options.group:  # who reads without one loads nothing of groups
            from trilogue.client.kafka.committing import Committing

            self._committing = Committing(cluster, options.group, f"{lane}-group")
        self._membership: GroupMember | None = None
        self._locating = Locating(
            cluster, options, self._committing, self._fetcher.held,
            found=self._located, failed=self.failed, identity=lambda: None,
        )  # fmt: skip
        self._tasks.spawn(self._locating.run())
        if options.auto_commit_s is not None and self._committing is not None:
            self._tasks.spawn(self._commit_now_and_then(options.auto_commit_s))
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
        if self._committing is None:
            raise ClientError("who subscribes is in a group; without one, assign partitions")
        if bool(topics) == (pattern is not None):
            raise ClientError("subscribe to topics, or to a pattern")
        if self._membership is None and self._fetcher.held:
            raise ClientError("partitions were assigned by hand")
        self._pattern = None if pattern is None else re.compile(pattern)
        self.topics = frozenset(topics)
        if self._pattern is not None:
            await self._match()
        if self._membership is None:
            from trilogue.client.kafka.member import member_of

            self._membership = member_of(self._cluster, self.options, self._committing, self)
            self._tasks.spawn(self._membership.run())
            self._fresh = self._tasks.spawn(self._look_again(self._membership))
        else:
            self._membership.rejoin()

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions and no others, whatever a group may do."""
        self._check()
        if self._membership is not None:
            raise ClientError("the group says what is read")
        wanted = {Partition(*one) for one in partitions}
        for topic in sorted({one.topic for one in wanted}):
            there = (await self._cluster.view(topic, create=self.options.create_topics)).epochs
            for number in (one.number for one in wanted if one.topic == topic):
                if number not in there:
                    raise KafkaError(3, f"{topic}-{number}")
        for one in self.assignment - wanted:
            self._drop(one)
        self._add(wanted - self.assignment)

    async def _match(self) -> None:
        """Subscribe to the topics that match by now."""
        assert self._pattern is not None
        names = await self._cluster.names()
        self.topics = frozenset(name for name in names if self._pattern.fullmatch(name))

    async def _look_again(self, membership: GroupMember) -> None:
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
                    answer = await self._cluster.ask(membership.leader_topics)
                    counts = {row.name or "": len(row.partitions) for row in answer.topics}
                    membership.topics_changed(counts)

    def _add(self, partitions: Iterable[Partition]) -> None:
        for one in sorted(partitions):
            self._fetcher.held[one] = Held(one)
        self._locating.want()

    def _drop(self, partition: Partition) -> None:
        held = self._fetcher.held.pop(partition, None)
        if held is not None:
            held.drop()
            self._given.pop(held, None)

    # Messages.

    async def poll(self, timeout_s: float | None = None, max_messages: int = MANY) -> list[Message]:
        """The next messages; waits for the first of them, until the timeout: then there are none.

        Who asks again has dealt with what it was given: from then on that may be committed.
        """
        self._check()
        self._came_back()
        self._polling += 1
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if self._troubles:
                        raise self._troubles.popleft()
                    messages = [] if self._is_rebalancing else self._take(max_messages)
                    if messages:
                        return messages
                    await self._wait()
                    self._check()
        except TimeoutError:
            return []
        finally:
            self._polling -= 1
            self._last_poll = self._loop.time()

    async def get(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None when there is none in time."""
        messages = await self.poll(timeout_s, 1)
        return messages[0] if messages else None

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Message by message, until the consumer is closed."""
        while self._closing is None:
            try:
                message = await self.get()
            except ClosedError:
                return
            if message is not None:
                yield message

    def _came_back(self) -> None:
        for held in self._given:
            held.consumed = held.position
        self._given.clear()
        if self._pause is not None and not self._pause.done():
            self._is_rebalancing = True
            self._pause.set_result(None)
        if self._membership is not None:
            self._membership.came_back()

    def _take(self, limit: int) -> list[Message]:
        messages: list[Message] = []
        freed = 0
        for held in self._fetcher.held.values():
            if not held.buffer or held.is_paused:
                continue
            before = held.buffered_bytes
            try:
                messages += held.take(limit - len(messages))
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

    def _locate(self) -> None:
        self._locating.want()

    def _located(self) -> None:
        self._fetcher.changed()
        self._wake()

    def failed(self, problem: Exception) -> None:
        """Keep what the application has to know; its next poll raises it."""
        if not self._troubles or str(self._troubles[-1]) != str(problem):
            self._troubles.append(problem)
        self._wake()

    # Positions.

    def _held(self, partition: tuple[str, int]) -> Held:
        held = self._fetcher.held.get(Partition(*partition))
        if held is None:
            raise ClientError(f"{partition[0]}-{partition[1]} is not read here now")
        return held

    async def position(self, partition: tuple[str, int]) -> int:
        """The next offset that a partition gives."""
        while True:
            self._check()
            held = self._held(partition)
            if held.position != NO_OFFSET:
                return held.position
            if self._troubles:
                raise self._troubles.popleft()
            await self._wait()

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Go on at an offset; also EARLIEST and LATEST."""
        held = self._held(partition)
        if offset >= 0:
            held.go_to(offset)
            self._fetcher.changed()
        else:
            held.find(offset)
            self._locating.want()

    def seek_to_time(self, partition: tuple[str, int], time_ms: int) -> None:
        """Go on at the first message of that time or a later one; at the end where none is."""
        self._held(partition).find(time_ms)
        self._locating.want()

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Give nothing of these for now; fetching them ends, too."""
        for one in partitions:
            self._held(one).is_paused = True

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

    def _group(self) -> Committing:
        if self._committing is None:
            raise ClientError("a consumer without a group has no positions to keep")
        return self._committing

    @property
    def _identity(self) -> Identity:
        from trilogue.client.kafka.committing import Identity

        return Identity() if self._membership is None else self._membership.identity

    def _still_us(self, partitions: Iterable[Partition]) -> Callable[[], Identity]:
        """Who commits these by now, for as long as that is who had them when it began.

        A commit that is tried again as a member of another generation could take back what others
        told meanwhile; generations and epochs may change while we keep the partitions.
        """
        first = self._identity
        had = {one: self._fetcher.held.get(one) for one in partitions}

        def now() -> Identity:
            who = self._identity
            kept = all(self._fetcher.held.get(one) is held is not None for one, held in had.items())
            if who != first and (who.member_id != first.member_id or not kept):
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, "commit", "lost meanwhile")
            return who

        return now

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Tell the group's coordinator where we are: behind what was given, or at these offsets.

        KafkaError where others have the partitions by now (ILLEGAL_GENERATION,
        UNKNOWN_MEMBER_ID) or are about to get them (REBALANCE_IN_PROGRESS).
        """
        self._check()
        group = self._group()
        if offsets is None:
            told = self._positions(lambda held: held.position)
        else:
            told = {
                Partition(*one): what if isinstance(what, GroupOffset) else GroupOffset(what)
                for one, what in offsets.items()
            }
        if told:
            await group.commit(told, self._still_us(told), total_s=self._cluster.timeout_s)

    def _positions(
        self, where: Callable[[Held], int], some: frozenset[Partition] | None = None
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

    async def _commit_now_and_then(self, every_s: float) -> None:
        told: dict[Partition, GroupOffset] = {}
        while True:
            await asyncio.sleep(every_s)
            now = self._positions(lambda held: held.consumed)
            if now and now != told:
                with suppress(ClientError):  # it is told again, or lost with its partitions
                    await self._group().commit(now, self._still_us(now), total_s=every_s)
                    told = now

    # As the membership sees it.

    def is_too_slow(self) -> bool:
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

    async def give_up(self, partitions: frozenset[Partition], *, lost: bool) -> None:
        """Read these no more."""
        _, on_revoked, on_lost = self._listeners
        if not lost and self.options.auto_commit_s is not None and self._committing is not None:
            with suppress(ClientError):
                told = self._positions(lambda held: held.position, partitions)
                if told:
                    total_s = self.options.heartbeat_s
                    await self._committing.commit(told, self._still_us(told), total_s=total_s)
        await self._tell(on_lost if lost else on_revoked, partitions)
        for one in partitions:
            self._drop(one)

    async def take_up(self, partitions: frozenset[Partition]) -> None:
        """Read these, too."""
        self._is_rebalancing = True  # nothing is given before the application has said from where
        self._add(partitions)
        await self._tell(self._listeners[0], partitions)

    async def _tell(self, listener: Listener | None, partitions: frozenset[Partition]) -> None:
        if listener is None or (not partitions and listener is not self._listeners[0]):
            return
        try:
            answer: Any = listener(sorted(partitions))
            if inspect.isawaitable(answer):
                await answer
        except Exception as problem:  # noqa: BLE001 - the application's own
            self.failed(problem)

    # The end.

    def _check(self) -> None:
        if self._closing is not None:
            raise ClosedError("the consumer is closed")

    async def close(self) -> None:
        """Tell where we are, leave the group, close sessions and connections."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._wake()
        await self._tasks.end()
        if self._membership is not None:
            self._membership.interrupted()
        try:
            with suppress(TimeoutError, ClientError):
                async with asyncio.timeout(self.options.close_timeout_s):
                    await self.give_up(self.assignment, lost=False)
                    if self._membership is not None:
                        await self._membership.leave("the consumer was closed")
        finally:
            self._fetcher.end()
            if self._committing is not None:
                self._committing.close()
