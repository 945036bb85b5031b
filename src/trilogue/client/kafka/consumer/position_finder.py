"""Finds the start position of partitions: the committed offset, or an offset by time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.kafka.admin.offsets import request_offsets
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.consumer.fetcher import MOVED
from trilogue.client.kafka.consumer.partition_state import NO_OFFSET, PartitionState
from trilogue.client.kafka.errors import KafkaError, NoPosition
from trilogue.client.kafka.model import LATEST, READ_COMMITTED, OffsetAt, Partition
from trilogue.client.kafka.options import ConsumerOptions
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from trilogue.client.kafka.consumer.offset_committer import MemberIdentity, OffsetCommitter


class PositionFinder:
    """The position lookups of one consumer, in a task of their own."""

    def __init__(
        self,
        cluster: KafkaCluster,
        options: ConsumerOptions,
        committer: OffsetCommitter | None,
        held: Mapping[Partition, PartitionState],
        *,
        found: Callable[[], None],
        failed: Callable[[Exception], None],
        identity: Callable[[], MemberIdentity | None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._committer = committer
        self._held = held
        self._found = found
        self._failed = failed
        self._identity = identity
        self._requested = asyncio.Event()

    def request(self) -> None:
        """There are partitions without a position."""
        self._requested.set()

    async def run(self) -> None:
        """Search whenever there is something to find."""
        while True:
            await self._requested.wait()
            self._requested.clear()
            missing = [held for held in self._held.values() if held.position == NO_OFFSET]
            if not missing:
                continue
            try:
                await self._group_positions([held for held in missing if held.reset_to is None])
                await self._request_offsets(
                    [held for held in missing if held.position == NO_OFFSET]
                )
            except ConnectionLost:
                await self._retry_later()
            except KafkaError as problem:
                if not problem.retriable:
                    self._failed(problem)
                await self._retry_later()
            except ClientError as problem:
                self._failed(problem)
                await self._retry_later()
            self._found()

    async def _retry_later(self) -> None:
        await asyncio.sleep(self._options.retry_pause_s)
        self._requested.set()

    async def _group_positions(self, missing: list[PartitionState]) -> None:
        """Use committed offsets; without one, the start of the options."""
        found = {}
        if self._committer is not None and missing:
            found = await self._committer.committed(
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
                held.move_to(position.offset)
                held.epoch = position.leader_epoch
            elif self._options.reset_to is not None:
                held.reset_to = self._options.reset_to
            else:
                topic, number = held.partition
                raise NoPosition(f"{topic}-{number} has no committed offset, and reset_to is None")

    async def _request_offsets(self, missing: list[PartitionState]) -> None:
        """Resolve times, EARLIEST and LATEST at the leader of each partition."""
        cluster = self._cluster
        failure: KafkaError | None = None
        unknown = {one.partition.topic for one in missing if self._leader(one) is None}
        if unknown:
            try:
                await cluster.refresh(sorted(unknown), needed_leaders=())
            except KafkaError as problem:  # of one topic, perhaps: others have their places
                failure = problem
        by_node: dict[int | None, list[PartitionState]] = {}
        for held in missing:
            by_node.setdefault(self._leader(held), []).append(held)
        failures = await asyncio.gather(*(self._request_from_node(*one) for one in by_node.items()))
        if failure is not None:
            raise failure
        for refused in failures:
            if refused is not None and refused.error not in MOVED:
                raise refused
        if any(failures):
            await asyncio.sleep(self._options.retry_pause_s)

    def _leader(self, held: PartitionState) -> int | None:
        return self._cluster.known_leader(*held.partition)

    async def _request_from_node(
        self, node: int | None, missing: list[PartitionState]
    ) -> KafkaError | None:
        """Find the places in partitions that a node leads; why there is none in some of them."""
        times = {held.partition: held.reset_to for held in missing if held.reset_to is not None}
        found: dict[Partition, OffsetAt | KafkaError] = {}
        if node is not None:
            with contextlib.suppress(ConnectionLost):
                connection = await self._cluster.node(node)
                timeout_ms = int(self._cluster.timeout_s * 1000)
                found = await request_offsets(
                    connection, times, self._options.isolation, timeout_ms
                )
        refused: KafkaError | None = None
        for held in missing:
            outcome = found.get(held.partition)
            if held.position != NO_OFFSET or held.reset_to != times.get(held.partition):
                continue
            if outcome is None or isinstance(outcome, KafkaError):
                self._cluster.invalidate_leader(*held.partition)
                self._requested.set()
                if refused is None or refused.error in MOVED:
                    refused = outcome or KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "offsets")
            elif outcome.offset == NO_OFFSET:  # nothing is that late
                held.reset_to = LATEST
                self._requested.set()
            else:
                held.move_to(outcome.offset)
                held.epoch = outcome.leader_epoch
        self._found()
        return refused
