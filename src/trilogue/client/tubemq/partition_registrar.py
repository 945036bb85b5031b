"""Registration of partitions at their brokers: register, heartbeat, move, unregister.

A lock keeps the order of requests to the brokers.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.pool import Address
from trilogue.client.tubemq.broker_metadata import BrokerPartition
from trilogue.client.tubemq.errors import TubeError
from trilogue.client.tubemq.options import Balance, ConsumerOptions, Position
from trilogue.client.tubemq.partition_state import FetchState, HeldPartitions, PartitionState
from trilogue.client.tubemq.server_connections import log
from trilogue.client.tubemq.session import (
    RETRIABLE,
    UNDEFINED,
    MasterSession,
    request_checked,
    wire_errors_as_failures,
)
from trilogue.wire.tubemq.broker_pb2 import (
    HeartBeatRequestC2B,
    HeartBeatResponseB2C,
    RegisterRequestC2B,
    RegisterResponseB2C,
)
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.text_fields import Failure

REGISTER, UNREGISTER = 31, 32
LAST_CONSUMED, LAST_NOT_CONSUMED = 0, 1
"""readStatus of an unregistration."""
RENEW_PAUSE_S: Final = 1.0
UNHEARD_MAX: Final = 2
"""Heartbeats that find no broker before its partitions are let go of."""
AT_ONCE: Final = 100
"""Partitions that are registered or given back at a time."""
LOST: Final = frozenset({TubeCode.PARTITION_OCCUPIED, TubeCode.DUPLICATE_PARTITION})
"""Another consumer holds the partition."""
NOT_REGISTERED: Final = frozenset(
    {TubeCode.NO_NODE, TubeCode.UNAUTHORIZED, TubeCode.CERTIFICATE_FAILURE}
)
"""The broker does not know us as the partition's reader (any more): to be registered again."""


class PartitionRegistrar(ABC):
    """The registrations of one consumer at the brokers."""

    def __init__(
        self,
        session: MasterSession,
        group: str,
        topics: Mapping[str, frozenset[str]],
        options: ConsumerOptions,
    ) -> None:
        self.holding = HeldPartitions()
        self.lock = asyncio.Lock()
        self._session = session
        self._group = group
        self._topics = topics
        self._options = options
        self._seen: set[str] = set()
        self._retry: dict[str, BrokerPartition] = {}
        self._refused: dict[str, TubeError] = {}  # by partition: it cannot be read for now
        self._sign: set[Address] = set()

    @abstractmethod
    def _pump(self) -> None:
        """Send gets to the registered partitions."""

    # Taking partitions and giving them back.

    async def register_all(self, places: Iterable[BrokerPartition]) -> list[ClientError]:
        """Register for partitions as far as they are to be had; why the others are not.

        A partition that another consumer still reads (410) is left for the next rebalance.
        """
        wanted = [place for place in places if place.key not in self.holding]
        troubles = []
        for at in range(0, len(wanted), AT_ONCE):
            results = await asyncio.gather(
                *(self.register(place) for place in wanted[at : at + AT_ONCE]),
                return_exceptions=True,
            )
            for place, result in zip(wanted[at : at + AT_ONCE], results, strict=False):
                if isinstance(result, ClientError):
                    log.info(
                        "tubemq.not_registered",
                        extra={"partition": place.key, "problem": str(result)},
                    )
                    troubles.append(result)
                    self._note_refusal(place.key, result)
                elif isinstance(result, BaseException):
                    raise result
        return troubles

    def _note_refusal(self, key: str, problem: ClientError) -> None:
        """Keep a refusal that another attempt will meet as well."""
        if isinstance(problem, TubeError) and not problem.retriable and problem.error not in LOST:
            self._refused[key] = problem

    async def register(self, place: BrokerPartition, offset: int | None = None) -> None:
        """Become the reader of a partition, where the group was or at an offset; TubeError."""
        self._session.check()
        first, bound = place.key not in self._seen, self._options.bound
        if offset is None and first and bound is not None:
            offset = bound.offsets.get(place.key)
        request = RegisterRequestC2B(
            opType=REGISTER,
            clientId=self._session.client_id,
            groupName=self._group,
            topicName=place.topic,
            partitionId=place.partition_id,
            readStatus=self._options.initial_position if first else Position.FIRST,
            filterCondStr=sorted(self._topics.get(place.topic, ())),
            currOffset=offset if offset is not None and offset >= 0 else None,
            qryPriorityId=UNDEFINED,
            authInfo=self._session.credentials.for_consumer(signed=True),
        )
        connection = await self._session.servers.get(place.address)
        answer = await request_checked(
            connection, "consumerRegisterC2B", request, RegisterResponseB2C
        )
        self._seen.add(place.key)
        self._refused.pop(place.key, None)
        self.holding.add(
            PartitionState(
                place,
                self._topics.get(place.topic, frozenset()),
                offset=answer.currOffset if answer.HasField("currOffset") else -1,
                max_offset=answer.maxOffset if answer.HasField("maxOffset") else -1,
            )
        )
        self._pump()

    async def unregister_all(self, helds: Iterable[PartitionState]) -> None:
        """Register no more for partitions; what of them is not confirmed is read by others."""
        leaving = list(helds)
        for at in range(0, len(leaving), AT_ONCE):
            results = await asyncio.gather(
                *(self._unregister(held) for held in leaving[at : at + AT_ONCE]),
                return_exceptions=True,
            )
            for result in results:
                if isinstance(result, ClientError):
                    log.info("tubemq.not_unregistered", extra={"problem": str(result)})
                elif isinstance(result, BaseException):
                    raise result

    async def _unregister(self, held: PartitionState) -> None:
        # A get under way or a pack in hand is not consumed, whatever was before.
        consumed = held.consumed and held.state is FetchState.IDLE
        self.holding.drop(held)
        self._refused.pop(held.key, None)
        place = held.place
        request = RegisterRequestC2B(
            opType=UNREGISTER,
            clientId=self._session.client_id,
            groupName=self._group,
            topicName=place.topic,
            partitionId=place.partition_id,
            readStatus=LAST_CONSUMED if consumed else LAST_NOT_CONSUMED,
            authInfo=self._session.credentials.for_consumer(signed=place.address in self._sign),
        )
        connection = await self._session.servers.get(place.address)
        await request_checked(connection, "consumerRegisterC2B", request, RegisterResponseB2C)

    async def move(self, key: str, offset: int) -> None:
        """Read a partition from an offset on; TubeError. What is in hand of it is void."""
        async with self.lock:
            held = self.holding.get(key)
            if held is None:
                raise TubeError(TubeCode.NO_PARTITION_ASSIGNED, "not ours now", key)
            with suppress(*RETRIABLE, TubeError):
                await self._unregister(held)
            await self.register(held.place, offset)

    def _on_partition_lost(self, held: PartitionState, *, again: bool) -> None:
        """A broker reports that this consumer does not hold a partition."""
        if self.holding.drop(held) and again:
            self._retry[held.key] = held.place
            # A pause: the broker may accept each registration and refuse each get.
            self._session.spawn(self.renew(0.0 if held.served else RENEW_PAUSE_S))

    async def renew(self, pause_s: float = 0.0) -> None:
        """Register again where brokers forgot us (411)."""
        await asyncio.sleep(pause_s)
        async with self.lock:
            again, self._retry = self._retry, {}
            if again:
                await self.register_all(again.values())

    def _on_broker_unreachable(self, helds: list[PartitionState]) -> None:
        """No connection to the broker: the master may know its new address."""
        if self._options.balance is not Balance.SERVER:
            return  # who balances itself sees that a broker has moved
        for held in helds:
            held.unheard += 1
            if held.unheard >= UNHEARD_MAX:
                self.holding.drop(held)
        self._session.wake()

    # Heartbeats.

    async def run_heartbeats(self) -> None:
        """Send heartbeats to every broker until the consumer is closed."""
        while True:
            await asyncio.sleep(self._session.core.options.heartbeat_s)
            await self.send_heartbeat()

    async def send_heartbeat(self) -> None:
        """Send a heartbeat to each broker."""
        async with self.lock:
            brokers = self.holding.by_broker()
            await asyncio.gather(*(self._heartbeat_broker(*one) for one in brokers.items()))

    async def _heartbeat_broker(self, address: Address, helds: list[PartitionState]) -> None:
        request = HeartBeatRequestC2B(
            clientId=self._session.client_id,
            groupName=self._group,
            readStatus=Position.FIRST,
            partitionInfo=[str(held.place) for held in helds],
            qryPriorityId=UNDEFINED,
            authInfo=self._session.credentials.for_consumer(signed=address in self._sign),
        )
        connection = None
        try:
            connection = await self._session.servers.get(address)
            answer = await request_checked(
                connection, "consumerHeartbeatC2B", request, HeartBeatResponseB2C
            )
            with wire_errors_as_failures(address):
                failures = [Failure.parse(text) for text in answer.failureInfo]
        except ClientError as problem:
            if isinstance(problem, TubeError) and problem.error is TubeCode.CERTIFICATE_FAILURE:
                self._sign.add(address)
            log.warning("tubemq.no_heartbeat", extra={"broker": address, "problem": str(problem)})
            if connection is None and isinstance(problem, ConnectionLost):
                self._on_broker_unreachable(helds)
            return
        for registered in helds:
            registered.unheard = 0
        (self._sign.add if answer.requireAuth else self._sign.discard)(address)
        for failure in failures:
            held = self.holding.get(str(failure.partition.key))
            if held is not None:
                self._on_partition_lost(held, again=failure.code not in LOST)
