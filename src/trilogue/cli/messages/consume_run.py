"""Reads for `trilogue consume`: a range of each partition, the last messages, or as a group."""

from __future__ import annotations

import heapq
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from trilogue.cli.cluster import CommandError, require_partitions
from trilogue.cli.messages.consume_format import Form
from trilogue.cli.messages.progress import Progress
from trilogue.cli.offsets import LATEST, Position
from trilogue.client.errors import ServerUnreachable
from trilogue.client.kafka.admin.offsets import OffsetAdmin
from trilogue.client.kafka.model import Partition, granted

if TYPE_CHECKING:
    from trilogue.client.kafka.client import KafkaClient
    from trilogue.client.kafka.consumer.consumer import Consumer
    from trilogue.client.kafka.consumer.message import Message

POLL_S: Final = 0.25
"""How long to wait before a look at positions that move without messages (markers, compaction)."""
MEMBER_POLL_S: Final = 0.05
"""The same for members, who may find that there is nothing to read."""
AT_ONCE: Final = 5000
PIPE_CLOSED: Final = 141
"""The exit code when the reader of a pipe has closed it: 128 + SIGPIPE."""
Ends = dict[Partition, int]
Use = Callable[[list["Message"]], bool]


class ConsumeRun:
    """One run of `trilogue consume`."""

    def __init__(
        self,
        client: KafkaClient,
        topic: str,
        form: Form,
        *,
        count: int | None,
        follow: bool,
        isolation: int,
    ) -> None:
        self._client = client
        self._topic = topic
        self._form = form
        self._left = count
        self._follow = follow
        self._isolation = isolation
        self._is_member = False
        self._progress = Progress("read", quiet=sys.stdout.isatty())

    async def between(self, begin: Position, until: Position, numbers: list[int] | None) -> int:
        """Read everything between two positions of each partition."""
        partitions = await self._partitions(numbers)
        begins = await self._resolved(partitions, begin)
        if self._follow:
            return await self._read(begins, None)
        ends = await self._ends(partitions, until)
        return await self._read(begins, ends)

    async def last(self, count: int, until: Position, numbers: list[int] | None) -> int:
        """Read the last messages of all partitions together, by timestamp."""
        partitions = await self._partitions(numbers)
        firsts = await self._resolved(partitions, Position(None, -2))
        ends = await self._ends(partitions, until)
        begins = {one: max(firsts[one], ends[one] - count) for one in partitions}
        kept: dict[int, list[Message]] = {}

        def keep(messages: list[Message]) -> bool:
            for message in messages:
                kept.setdefault(message.partition, []).append(message)
            return True

        async with await self._consumer() as consumer:
            await self._until(consumer, begins, ends, keep)
        merged = list(heapq.merge(*kept.values(), key=lambda message: message.timestamp))
        if not self._write(merged[-count:]):
            return PIPE_CLOSED
        return await self._read(ends, None) if self._follow else self._done()

    async def as_group(self, group: str, begin: Position) -> int:
        """Read as a member of a group, from its position to the present end of its partitions."""
        partitions = await self._partitions(None)
        consumer = await self._client.consumer(
            self._topic, group=group, reset_to=begin.time, auto_commit_s=None,
            isolation=self._isolation, on_assigned=self._assigned,
        )  # fmt: skip
        async with consumer:  # it joins, which takes a while; the ends are found out meanwhile
            ends = await self._ends(partitions, Position(None, LATEST))
            return await self._as_member(consumer, ends)

    def _assigned(self, _partitions: list[Partition]) -> None:
        self._is_member = True

    async def _as_member(self, consumer: Consumer, ends: Ends) -> int:
        try:
            while True:
                messages = await self._poll(
                    consumer, MEMBER_POLL_S, min(AT_ONCE, self._left or AT_ONCE)
                )
                if not self._write(messages):
                    return PIPE_CLOSED
                if messages:
                    await consumer.commit()
                if self._left == 0:
                    return self._done()
                if self._follow or not self._is_member:
                    continue
                if not consumer.assignment:
                    raise CommandError(f"the other members of the group read all of {self._topic}")
                if await _is_through(consumer, ends):
                    return self._done()
        finally:
            self._progress.end()

    async def _read(self, begins: Ends, ends: Ends | None) -> int:
        async with await self._consumer() as consumer:
            if not await self._until(consumer, begins, ends, self._write):
                return PIPE_CLOSED
        return self._done()

    async def _until(self, consumer: Consumer, begins: Ends, ends: Ends | None, use: Use) -> bool:
        """Read between offsets, or for ever; return whether the output took everything."""
        todo = {one for one in begins if ends is None or begins[one] < ends[one]}
        if not todo:
            return True
        await consumer.assign(todo)
        for one in todo:
            consumer.seek(one, begins[one])
        while todo and self._left != 0:
            messages = await self._poll(consumer, POLL_S, AT_ONCE)
            wanted = messages if ends is None else _before(messages, ends)
            if self._left is not None:
                wanted = wanted[: self._left]
            if wanted and not use(wanted):
                return False
            if ends is not None:
                todo -= await _reached(consumer, todo, ends)
        return True

    async def _poll(self, consumer: Consumer, timeout_s: float, limit: int) -> list[Message]:
        """The next messages; with --follow, a server that is down is waited for."""
        try:
            return await consumer.poll(timeout_s, limit)
        except ServerUnreachable:
            if not self._follow:
                raise
            return []

    async def _consumer(self) -> Consumer:
        return await self._client.consumer(isolation=self._isolation, reset_to=-2)

    async def _partitions(self, numbers: Iterable[int] | None) -> list[Partition]:
        found = await require_partitions(self._client.cluster, self._topic, numbers)
        return [Partition(self._topic, number) for number in found]

    async def _resolved(self, partitions: list[Partition], where: Position) -> Ends:
        """Return the offsets of a position; the end if no message is that late."""
        if where.offset is not None:
            return dict.fromkeys(partitions, where.offset)
        offsets = OffsetAdmin(self._client.cluster)
        requested: dict[tuple[str, int], int] = dict.fromkeys(partitions, where.time)
        found = granted(await offsets.list_offsets(requested, isolation=self._isolation))
        late: dict[tuple[str, int], int] = {
            one: LATEST for one in partitions if found[one].offset < 0
        }
        if late:
            found |= granted(await offsets.list_offsets(late, isolation=self._isolation))
        return {one: found[one].offset for one in partitions}

    async def _ends(self, partitions: list[Partition], until: Position) -> Ends:
        """Return where to stop: a position, at most the present end."""
        present = await self._resolved(partitions, Position(None, LATEST))
        if until == Position(None, LATEST):
            return present
        wanted = await self._resolved(partitions, until)
        return {one: min(present[one], wanted[one]) for one in partitions}

    def _write(self, messages: list[Message]) -> bool:
        """Print messages; return False if the reader of the pipe has gone."""
        if not messages:
            return True
        if self._left is not None:
            self._left -= len(messages)
        try:
            sys.stdout.buffer.write(b"".join([self._form(one) for one in messages]))
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return False
        size = sum(len(one.value or b"") + len(one.key or b"") for one in messages)
        self._progress.add(len(messages), size)
        return True

    def _done(self) -> int:
        self._progress.end("read")
        return 0


def _before(messages: list[Message], ends: Mapping[Partition, int]) -> list[Message]:
    return [one for one in messages if one.offset < ends[Partition(one.topic, one.partition)]]


async def _reached(
    consumer: Consumer, todo: Iterable[Partition], ends: Mapping[Partition, int]
) -> set[Partition]:
    """Return partitions that have reached their end, which are not read any more."""
    done = set()
    for one in todo:
        if await consumer.position(one) >= ends[one]:
            consumer.pause(one)
            done.add(one)
    return done


async def _is_through(consumer: Consumer, ends: Mapping[Partition, int]) -> bool:
    """Return whether a member has read its partitions to their ends."""
    mine = consumer.assignment & ends.keys()
    return all([await consumer.position(one) >= ends[one] for one in mine])
