"""Partition assignment by the master: rebalance events in heartbeat responses.

    heartbeat ──► answer with an event (opType, rebalanceId, partitions)
                    connect: register at the brokers    disconnect: give back
    heartbeat ◄── the same event with status DONE, and all partitions that are ours now

One event at a time; its result goes back at once, not with the next usual heartbeat. Whatever could
not be had (410: its last reader has not left yet) is missing in the report, and the master's next
round hands it out again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final, Protocol, TypeVar

from google.protobuf.message import Message

from trilogue.client.tubemq.auth import Credentials
from trilogue.client.tubemq.broker_metadata import BrokerPartition
from trilogue.client.tubemq.errors import UnknownEvent
from trilogue.client.tubemq.options import ConsumerOptions
from trilogue.client.tubemq.partition_reader import PartitionReader
from trilogue.client.tubemq.partition_state import FetchState, PartitionState
from trilogue.client.tubemq.server_connections import log
from trilogue.client.tubemq.session import RUNTIME, UNDEFINED, ClientContext
from trilogue.wire.tubemq.master_pb2 import (
    EventProto,
    HeartRequestC2M,
    HeartResponseM2C,
    RegisterRequestC2M,
    RegisterResponseM2C,
)
from trilogue.wire.tubemq.text_fields import Condition, Subscription

Answer = TypeVar("Answer", bound=Message)
REPORT_EVERY: Final = 6
"""Heartbeats between two unrequested reports of all partitions."""
RESULTS_MAX: Final = 100
"""Events whose results wait for a heartbeat."""
DONE, FAILED = 2, -2
"""Status of an event that we give back."""


class RebalanceEvent(IntEnum):
    """The types of rebalance events; the numbers are opType."""

    CONNECT = 1
    DISCONNECT = 2
    REPORT = 3
    STOP_REBALANCE = 5
    ONLY_CONNECT = 10
    ONLY_DISCONNECT = 20


class BalancedConsumer(Protocol):
    """The consumer, as the assignment of its partitions sees it."""

    core: ClientContext
    options: ConsumerOptions
    client_id: str
    group: str
    topics: dict[str, frozenset[str]]
    credentials: Credentials
    reading: PartitionReader

    async def request_master(self, name: str, message: Any, kind: type[Answer]) -> Answer:
        """Send a request to the active master."""

    async def release(self, helds: list[PartitionState]) -> None:
        """Give partitions back once their batches in hand are confirmed."""

    def wake(self) -> None:
        """Send the next heartbeat now."""


class BalanceStrategy(Protocol):
    """How the partitions of a consumer are assigned."""

    @property
    def needs_heartbeat(self) -> bool:
        """Whether it waits for something that the next heartbeat may bring."""

    async def register(self) -> None:
        """Have the master take the consumer in."""

    async def send_heartbeat(self) -> None:
        """Send one heartbeat to the master, and do what its answer wants."""


class FlowControlIds:
    """The flow control ids of the master: brokers apply the rules, consumers report the ids."""

    def __init__(self) -> None:
        self.default_id = self.group_id = self.priority_id = UNDEFINED
        self.group_rules = ""

    def store_ids(self, answer: RegisterResponseM2C | HeartResponseM2C) -> None:
        """Keep what an answer holds: an id each time, the rules when they changed."""
        if answer.HasField("defFlowCheckId"):
            self.default_id = answer.defFlowCheckId
        if answer.HasField("groupFlowCheckId"):
            self.group_id = answer.groupFlowCheckId
        if answer.HasField("qryPriorityId"):
            self.priority_id = answer.qryPriorityId
        if answer.HasField("groupFlowControlInfo"):
            self.group_rules = answer.groupFlowControlInfo.strip()


class ServerBalance:
    """The requests to the master of a consumer whose partitions the master assigns."""

    def __init__(self, consumer: BalancedConsumer) -> None:
        self._consumer = consumer
        self._flow = FlowControlIds()
        self._started_ms = int(consumer.core.clock() * 1000)
        self._beats = 0
        self._report = False
        self._reported: list[str] = []
        self._results: deque[EventProto] = deque(maxlen=RESULTS_MAX)
        self._not_allocated = True

    @property
    def needs_heartbeat(self) -> bool:
        """While nothing was allocated, the next heartbeat may bring it."""
        return self._not_allocated or len(self._consumer.reading.holding) == 0

    async def register(self) -> None:
        """Register the consumer, its topics and its partitions."""
        consumer, bound = self._consumer, self._consumer.options.bound
        request = RegisterRequestC2M(
            clientId=consumer.client_id,
            groupName=consumer.group,
            hostName=consumer.core.host_name(),
            topicList=list(consumer.topics),
            subscribeInfo=self._subscriptions(),
            topicCondition=topic_conditions(consumer),
            requireBound=bound is not None,
            sessionTime=self._started_ms,
            groupFlowCheckId=self._flow.group_id,
            defFlowCheckId=self._flow.default_id,
            qryPriorityId=self._flow.priority_id,
            authInfo=consumer.credentials.for_master(),
            jdkVersion=RUNTIME,
        )
        if bound is not None:
            request.sessionKey = bound.session_key
            request.totalCount = bound.consumers
            request.selectBig = bound.prefer_larger
            request.notAllocated = self._not_allocated
            request.requiredPartition = ",".join(
                f"{key}={offset}" for key, offset in bound.offsets.items()
            )
        answer = await consumer.request_master("consumerRegisterC2M", request, RegisterResponseM2C)
        self._take(answer)
        self._reported = list(request.subscribeInfo)
        self._report = bool(self._reported)

    async def send_heartbeat(self) -> None:
        """Report, and do what the master wants done."""
        consumer = self._consumer
        self._beats += 1
        result = self._results[0] if self._results else None
        ours = self._subscriptions()
        report = self._report or result is not None or self._beats % REPORT_EVERY == 0
        report |= ours != self._reported  # some were lost, or are read again
        request = HeartRequestC2M(
            clientId=consumer.client_id,
            groupName=consumer.group,
            subscribeInfo=ours if report else (),
            reportSubscribeInfo=report,
            event=result,
            defFlowCheckId=self._flow.default_id,
            groupFlowCheckId=self._flow.group_id,
            qryPriorityId=self._flow.priority_id,
            authInfo=consumer.credentials.for_master(),
        )
        answer = await consumer.request_master("consumerHeartbeatC2M", request, HeartResponseM2C)
        if result is not None:
            self._results.popleft()
        if report:
            self._reported = ours
        self._report = False
        self._take(answer)
        consumer.credentials.required = answer.requireAuth
        if answer.HasField("event") and answer.event.HasField("rebalanceId"):
            await self._on_event(answer.event)
        if self._results or self._report:
            consumer.wake()

    def _take(self, answer: RegisterResponseM2C | HeartResponseM2C) -> None:
        if answer.HasField("authorizedInfo"):
            self._consumer.credentials.store_tokens(answer.authorizedInfo)
        if answer.HasField("notAllocated"):
            self._not_allocated = answer.notAllocated
        self._flow.store_ids(answer)

    async def _on_event(self, event: EventProto) -> None:
        """Handle a rebalance event; the next get raises UnknownEvent for an unknown kind."""
        log.info(
            "tubemq.rebalance",
            extra={"rebalance_id": event.rebalanceId, "op_type": event.opType},
        )
        reading = self._consumer.reading
        places = [Subscription.parse(text).partition for text in event.subscribeInfo]
        status = DONE
        if event.opType in {RebalanceEvent.CONNECT, RebalanceEvent.ONLY_CONNECT}:
            async with reading.lock:
                await reading.register_all(BrokerPartition(partition) for partition in places)
        elif event.opType in {RebalanceEvent.DISCONNECT, RebalanceEvent.ONLY_DISCONNECT}:
            found = (reading.holding.get(str(partition.key)) for partition in places)
            await self._consumer.release([held for held in found if held is not None])
        elif event.opType == RebalanceEvent.REPORT:
            self._report = True
            return
        elif event.opType == RebalanceEvent.STOP_REBALANCE:
            return
        else:
            status = FAILED
            problem = UnknownEvent(
                f"rebalance {event.rebalanceId} wants {event.opType}, which no client knows"
            )
            reading.report(problem)
        self._results.append(
            EventProto(
                rebalanceId=event.rebalanceId,
                opType=event.opType,
                status=status,
                subscribeInfo=event.subscribeInfo,
            )
        )

    def _subscriptions(self) -> list[str]:
        consumer = self._consumer
        return [
            str(Subscription(consumer.client_id, consumer.group, held.place.partition))
            for held in consumer.reading.holding.all()
        ]


def topic_conditions(consumer: BalancedConsumer) -> list[str]:
    """The filters of topics that have some."""
    return [
        str(Condition(topic, tuple(sorted(filters))))
        for topic, filters in consumer.topics.items()
        if filters
    ]


async def wait_confirmed(helds: list[PartitionState], wait_s: float, poll: asyncio.Event) -> None:
    """Wait until what the application has of partitions is confirmed; not longer than that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            while any(held.state in {FetchState.IN_HAND, FetchState.CONFIRMING} for held in helds):
                poll.clear()
                await poll.wait()
