"""Partition assignment by the client itself (V2 requests).

The master reports brokers and topics with an id for each state; a request with the same ids gets
empty lists. Of all partitions in order, a consumer takes those whose
place modulo `source_count` is its `node_id`, or those that the application chooses.
"""

from __future__ import annotations

from typing import Final

from trilogue.client.tubemq.broker_metadata import BrokerPartition, places
from trilogue.client.tubemq.options import Balance
from trilogue.client.tubemq.server_balance import REPORT_EVERY, BalancedConsumer, topic_conditions
from trilogue.client.tubemq.session import RUNTIME, UNDEFINED
from trilogue.wire.tubemq.master_pb2 import (
    ClientSubRepInfo,
    GetPartMetaRequestC2M,
    GetPartMetaResponseM2C,
    HeartRequestC2MV2,
    HeartResponseM2CV2,
    OpsTaskInfo,
    RegisterRequestC2MV2,
    RegisterResponseM2CV2,
)
from trilogue.wire.tubemq.text_fields import SUBSCRIBABLE, BrokerInfo, TopicMeta, held_texts

NEVER: Final = -1


class ClientBalance:
    """The requests to the master of a consumer that chooses its own partitions."""

    def __init__(self, consumer: BalancedConsumer) -> None:
        self._consumer = consumer
        self._brokers_id = self._topics_id = UNDEFINED
        self._brokers: dict[int, BrokerInfo] = {}
        self._metas: dict[str, TopicMeta] = {}
        self._assigned_ms = NEVER
        self._reported_ms = NEVER
        self._beats = 0
        self._tasks = OpsTaskInfo()

    @property
    def needs_heartbeat(self) -> bool:
        """While there is nothing to read the next heartbeat may bring it."""
        return not self.places()

    def places(self) -> list[BrokerPartition]:
        """All partitions that may be read, in the order that all consumers see."""
        found: list[BrokerPartition] = []
        for topic in sorted(self._consumer.topics):
            meta = self._metas.get(topic)
            if meta is not None:
                open_ = [at for at, status in meta.brokers if status == SUBSCRIBABLE]
                found += places(topic, open_, self._brokers)
        return sorted(found, key=lambda place: place.partition.key)

    async def register(self) -> None:
        """Register the consumer and its topics; load the partitions."""
        consumer, options = self._consumer, self._consumer.options
        request = RegisterRequestC2MV2(
            clientId=consumer.client_id,
            groupName=consumer.group,
            hostName=consumer.core.host_name(),
            sourceCount=options.source_count,
            nodeId=options.node_id,
            topicList=list(consumer.topics),
            topicCondition=topic_conditions(consumer),
            subRepInfo=self._state(report=False),
            opsTaskInfo=self._known_tasks(),
            authInfo=consumer.credentials.for_master(),
            jdkVersion=RUNTIME,
        )
        answer = await consumer.request_master(
            "consumerRegisterC2MV2", request, RegisterResponseM2CV2
        )
        self._take(answer)
        await self._learn()
        await self._assign()

    async def send_heartbeat(self) -> None:
        """Report, and learn what changed."""
        consumer = self._consumer
        self._beats += 1
        report = self._assigned_ms != self._reported_ms or self._beats % REPORT_EVERY == 0
        request = HeartRequestC2MV2(
            clientId=consumer.client_id,
            groupName=consumer.group,
            subRepInfo=self._state(report=report),
            opsTaskInfo=self._known_tasks(),
            authInfo=consumer.credentials.for_master(),
        )
        answer = await consumer.request_master(
            "consumerHeartbeatC2MV2", request, HeartResponseM2CV2
        )
        if report:
            self._reported_ms = self._assigned_ms
        self._take(answer)
        consumer.credentials.required = answer.opsTaskInfo.requireAuth
        if not (answer.HasField("topicMetaInfoId") and self._take_topics(answer)):
            await self._learn()
        await self._assign()

    async def _learn(self) -> None:
        """Request the partitions of the topics."""
        consumer = self._consumer
        request = GetPartMetaRequestC2M(
            clientId=consumer.client_id,
            groupName=consumer.group,
            brokerConfigId=self._brokers_id,
            topicMetaInfoId=self._topics_id,
            authInfo=consumer.credentials.for_master(),
        )
        answer = await consumer.request_master(
            "consumerGetPartMetaInfoC2M", request, GetPartMetaResponseM2C
        )
        self._take_brokers(answer)
        self._take_topics(answer)

    def _take(self, answer: RegisterResponseM2CV2 | HeartResponseM2CV2) -> None:
        if answer.HasField("authorizedInfo"):
            self._consumer.credentials.store_tokens(answer.authorizedInfo)
        self._tasks.MergeFrom(answer.opsTaskInfo)
        self._take_brokers(answer)

    def _take_brokers(
        self, answer: RegisterResponseM2CV2 | HeartResponseM2CV2 | GetPartMetaResponseM2C
    ) -> None:
        found = [BrokerInfo.parse(text) for text in answer.brokerConfigList]
        if answer.HasField("brokerConfigId"):
            self._brokers_id = answer.brokerConfigId
        if found:
            self._brokers = {broker.broker_id: broker for broker in found}

    def _take_topics(self, answer: HeartResponseM2CV2 | GetPartMetaResponseM2C) -> bool:
        found = [TopicMeta.parse(text) for text in answer.topicMetaInfoList]
        if answer.HasField("topicMetaInfoId"):
            self._topics_id = answer.topicMetaInfoId
        if found:
            self._metas = {meta.topic: meta for meta in found}
        return bool(found)

    def _known_tasks(self) -> OpsTaskInfo | None:
        """Numbers of the rules that the master gave; their text is the brokers' business."""
        known = OpsTaskInfo()
        known.CopyFrom(self._tasks)
        for name in ("requireAuth", "defFlowControlInfo", "groupFlowControlInfo"):
            known.ClearField(name)
        return known if known.ListFields() else None

    def _state(self, *, report: bool) -> ClientSubRepInfo:
        state = ClientSubRepInfo(
            brokerConfigId=self._brokers_id, topicMetaInfoId=self._topics_id, reportSubInfo=report
        )
        if self._assigned_ms != NEVER:
            state.lstAssignedTime = self._assigned_ms
        if report:
            held = self._consumer.reading.holding.all()
            state.partSubInfo.extend(held_texts(each.place.partition.key for each in held))
        return state

    async def _assign(self) -> None:
        """Take what is ours by our number, and give back what is not (any more)."""
        options, reading = self._consumer.options, self._consumer.reading
        available = self.places()
        count = max(1, options.source_count)
        mine = {
            place.key: place for at, place in enumerate(available) if at % count == options.node_id
        }
        existing = {place.key for place in available}
        if options.balance is Balance.MANUAL:
            leaving = [held for held in reading.holding.all() if held.key not in existing]
            mine = {}
        else:
            leaving = [held for held in reading.holding.all() if held.key not in mine]
        there = {place.key: place for place in available}
        moved = [
            held
            for held in reading.holding.all()
            if held not in leaving and held.place.address != there[held.key].address
        ]
        leaving += moved
        mine |= {held.key: there[held.key] for held in moved}  # at its broker's new address
        await self._consumer.release(leaving)
        before = len(reading.holding)
        async with reading.lock:
            await reading.register_all(mine.values())
        if leaving or len(reading.holding) != before:
            self.changed()

    def changed(self) -> None:
        """What we read has changed: the next heartbeat reports it."""
        self._assigned_ms = int(self._consumer.core.clock() * 1000)
        self._consumer.wake()
