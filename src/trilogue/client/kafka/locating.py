"""Finds out where to begin in partitions that have no position: where the group was, or by time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.kafka.admin.offsets import ask_offsets
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.errors import KafkaError, NoPosition
from trilogue.client.kafka.fetcher import MOVED
from trilogue.client.kafka.held import NO_OFFSET, Held
from trilogue.client.kafka.options import ConsumerOptions
from trilogue.client.kafka.shapes import LATEST, READ_COMMITTED, OffsetAt, Partition
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from trilogue.client.kafka.committing import Committing, Identity


class Locating:
    """The search of one consumer; a task of its own."""

    def __init__(
        self,
        cluster: KafkaCluster,
        options: ConsumerOptions,
        committing: Committing | None,
        held: Mapping[Partition, Held],
        *,
        found: Callable[[], None],
        failed: Callable[[Exception], None],
        identity: Callable[[], Identity | None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._committing = committing
        self._held = held
        self._found = found
        self._failed = failed
        self._identity = identity
        self._wanted = asyncio.Event()

    def want(self) -> None:
        """There are partitions without a position."""
        self._wanted.set()

    async def run(self) -> None:
        """Search whenever there is something to find."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            missing = [held for held in self._held.values() if held.position == NO_OFFSET]
            if not missing:
                continue
            try:
                await self._group_positions([held for held in missing if held.reset_to is None])
                await self._ask([held for held in missing if held.position == NO_OFFSET])
            except ConnectionLost:
                await self._later()
            except KafkaError as problem:
                if not problem.retriable:
                    self._failed(problem)
                await self._later()
            except ClientError as problem:
                self._failed(problem)
                await self._later()
            self._found()

    async def _later(self) -> None:
        await asyncio.sleep(self._options.retry_pause_s)
        self._wanted.set()

    async def _group_positions(self, missing: list[Held]) -> None:
        """Where the group was; where it never was, the options say where to begin."""
        found = {}
        if self._committing is not None and missing:
            found = await self._committing.committed(
                [held.partition for held in missing],
                stable=self._options.isolation == READ_COMMITTED,
                total_s=self._cluster.timeout_s,
                identity=self._identity(),
            )
        for held in missing:
            if held.position != NO_OFFSET or held.reset_to is not None:
                continue  # the application has gone elsewhere meanwhile
            position = found.get(held.partition)
            if position is not None:
                held.go_to(position.offset)
                held.epoch = position.leader_epoch
            elif self._options.reset_to is not None:
                held.reset_to = self._options.reset_to
            else:
                topic, number = held.partition
                raise NoPosition(f"nobody knows where to begin in {topic}-{number}")

    async def _ask(self, missing: list[Held]) -> None:
        """The offsets of times, the first and the last; each node is asked for its own."""
        cluster = self._cluster
        trouble: KafkaError | None = None
        unknown = {one.partition.topic for one in missing if self._leader(one) is None}
        if unknown:
            try:
                await cluster.refresh(sorted(unknown), led=())
            except KafkaError as problem:  # of one topic, perhaps: others have their places
                trouble = problem
        by_node: dict[int | None, list[Held]] = {}
        for held in missing:
            by_node.setdefault(self._leader(held), []).append(held)
        troubles = await asyncio.gather(*(self._ask_node(*one) for one in by_node.items()))
        if trouble is not None:
            raise trouble
        for refused in troubles:
            if refused is not None and refused.error not in MOVED:
                raise refused
        if any(troubles):
            await asyncio.sleep(self._options.retry_pause_s)

    def _leader(self, held: Held) -> int | None:
        return self._cluster.known_leader(*held.partition)

    async def _ask_node(self, node: int | None, missing: list[Held]) -> KafkaError | None:
        """Find the places in partitions that a node leads; why there is none in some of them."""
        times = {held.partition: held.reset_to for held in missing if held.reset_to is not None}
        found: dict[Partition, OffsetAt | KafkaError] = {}
        if node is not None:
            with contextlib.suppress(ConnectionLost):
                connection = await self._cluster.node(node)
                timeout_ms = int(self._cluster.timeout_s * 1000)
                found = await ask_offsets(connection, times, self._options.isolation, timeout_ms)
        refused: KafkaError | None = None
        for held in missing:
            outcome = found.get(held.partition)
            if held.position != NO_OFFSET or held.reset_to != times.get(held.partition):
                continue
            if outcome is None or isinstance(outcome, KafkaError):
                self._cluster.doubt(*held.partition)
                self._wanted.set()
                if refused is None or refused.error in MOVED:
                    refused = outcome or KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "offsets")
            elif outcome.offset == NO_OFFSET:  # nothing is that late
                held.reset_to = LATEST
                self._wanted.set()
            else:
                held.go_to(outcome.offset)
                held.epoch = outcome.leader_epoch
        self._found()
        return refused
