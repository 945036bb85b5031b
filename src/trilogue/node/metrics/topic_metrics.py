"""The series of /metrics that name topics, groups and subscriptions, under names that others know.

    kafka_topic_…, kafka_consumergroup_…   as kafka_exporter has them, in Kafka's spelling
    pulsar_…                               as a Pulsar broker has them, by partition
    trilogue_…                             topics and TubeMQ's groups

    kafka_server_brokertopicmetrics_…      as the JMX exporter makes them of a Kafka's MBeans

Nothing is counted here: numbers are those of logs and positions at this moment, and rates are those
that a Pulsar broker has (topic_rates.py). They are gathered in steps, groups first, and end at a
number of series; `trilogue_series_left_out` is 1 then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Literal

from trilogue.broker.broker import Broker
from trilogue.broker.facts import Protocol
from trilogue.broker.names import format_kafka, format_pulsar, is_kafka_name
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.http.metrics import Labels, Metric
from trilogue.gateway.pulsar.gateway import PulsarGateway
from trilogue.gateway.pulsar.subscriptions import SubscriptionStats
from trilogue.gateway.steps import next_step
from trilogue.node.metrics.topic_rates import CounterRates

STEP_S: Final = 0.001  # of the loop, then others are served
COUNTER_END: Final = "_total"
DOCS: Final = {
    "kafka_consumergroup_members": "Members of a group.",
    "kafka_consumergroup_current_offset": "The committed offset of a group in a partition.",
    "kafka_consumergroup_lag": "Messages of a partition behind the group's committed offset.",
    "kafka_consumergroup_lag_sum": "The same for all partitions of a topic.",
    "kafka_topic_partitions": "Partitions of a topic.",
    "kafka_topic_partition_current_offset": "The end offset of a partition.",
    "kafka_topic_partition_oldest_offset": "The first offset of a partition.",
    "kafka_server_brokertopicmetrics_messagesin_total": "Messages appended to a topic.",
    "kafka_server_brokertopicmetrics_bytesin_total": "Bytes appended to a topic, or restored.",
    "kafka_server_brokertopicmetrics_bytesout_total": "Bytes sent to Kafka and TubeMQ clients.",
    "pulsar_topics_count": "Topics and partitions of a namespace on this node.",
    "pulsar_subscriptions_count": "Subscriptions of a topic.",
    "pulsar_producers_count": "Producers of a topic.",
    "pulsar_consumers_count": "Consumers of a topic.",
    "pulsar_storage_size": "Bytes that a topic keeps.",
    "pulsar_in_bytes_total": "Bytes appended to a topic since the start, or restored.",
    "pulsar_subscription_total_msg_expired": "Messages skipped by policies since the start.",
    "pulsar_in_messages_total": "Messages appended to a topic since it was created.",
    "pulsar_rate_in": "Messages appended to a topic per second, over a minute or two.",
    "pulsar_throughput_in": "Their bytes.",
    "pulsar_rate_out": "Messages sent to the subscriptions of a topic per second.",
    "pulsar_throughput_out": "Their bytes.",
    "pulsar_subscription_msg_rate_out": "Messages sent to a subscription per second.",
    "pulsar_subscription_msg_throughput_out": "Their bytes.",
    "pulsar_subscription_back_log": "Unacknowledged messages of a subscription.",
    "pulsar_subscription_back_log_no_delayed": "The same without those that are delayed.",
    "pulsar_subscription_delayed": "Messages that are delayed.",
    "pulsar_subscription_unacked_messages": "Messages sent to consumers and not acknowledged.",
    "pulsar_subscription_blocked_on_unacked_messages": "1: it waits for acknowledgements.",
    "pulsar_subscription_consumers_count": "Consumers of a subscription.",
    "pulsar_out_messages_total": "Messages sent to a subscription.",
    "pulsar_out_bytes_total": "Their bytes.",
    "trilogue_topic_messages_total": "Messages appended to a topic since it was created.",
    "trilogue_topic_bytes": "Bytes that a topic keeps, on this node.",
    "trilogue_tubemq_group_lag": "Messages of a partition behind the confirmed offset of a group.",
    "trilogue_series_left_out": "1: there are more series than http.metrics-series.",
}


class TooManySeriesError(Exception):
    """There is no room for one more series."""


class TopicMetrics:
    """Gathers the series of one node."""

    def __init__(
        self,
        broker: Broker,
        pulsar: PulsarGateway | None,
        cluster: str,
        series_max: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker = broker
        self._pulsar = pulsar
        self._cluster = cluster
        self._series_max = series_max
        self._monotonic = monotonic
        self._rates = CounterRates()
        self._gathering = asyncio.Lock()  # one at a time: rates are of whole gatherings

    async def gather(self) -> list[Metric]:
        """Return all series with their current values."""
        async with self._gathering:
            return await self._gather()

    async def _gather(self) -> list[Metric]:
        self._rates.begin(self._monotonic())
        collected = _Collected(self._series_max)
        step = _Step(self._monotonic)
        is_cut = False
        try:
            places = await self._map_partitions(step)
            await self._gather_kafka_groups(collected, places, step)
            await self._gather_tubemq_groups(collected, places, step)
            await self._gather_subscriptions(collected, places, step)
            await self._gather_topics(collected, step)
        except TooManySeriesError:
            is_cut = True
        collected.samples["trilogue_series_left_out"] = [({}, float(is_cut))]
        return collected.metrics()

    async def _map_partitions(self, step: _Step) -> dict[int, tuple[Topic, int]]:
        """Return topic and number of each partition of this node, by id."""
        found: dict[int, tuple[Topic, int]] = {}
        for topic in list(self._broker.cluster):
            for number, partition in enumerate(topic.partitions):
                if not partition.is_remote:
                    found[partition.partition_id] = topic, number
            if step.is_over:
                await step.end()
        return found

    async def _gather_kafka_groups(
        self, collected: _Collected, places: dict[int, tuple[Topic, int]], step: _Step
    ) -> None:
        broker = self._broker
        for listing in list(broker.group_admin.listed()):
            members = 0 if listing.group is None else len(listing.group.members)
            collected.add("kafka_consumergroup_members", members, consumergroup=listing.name)
            sums: dict[str, int] = {}
            marks = broker.committed_offsets.positions(Protocol.KAFKA, listing.name)
            for partition_id, position in list(marks.items()):
                if step.is_over:
                    await step.end()
                place = places.get(partition_id)
                if place is None or not is_kafka_name(place[0].name):
                    continue
                name = format_kafka(place[0].name)
                labels = {"consumergroup": listing.name, "topic": name, "partition": str(place[1])}
                lag = _lag(place[0].partitions[place[1]], position.mark)
                collected.add("kafka_consumergroup_current_offset", position.mark, **labels)
                collected.add("kafka_consumergroup_lag", lag, **labels)
                sums[name] = sums.get(name, 0) + lag
            for name, total in sums.items():
                collected.add(
                    "kafka_consumergroup_lag_sum", total, consumergroup=listing.name, topic=name
                )
            if step.is_over:
                await step.end()

    async def _gather_tubemq_groups(
        self, collected: _Collected, places: dict[int, tuple[Topic, int]], step: _Step
    ) -> None:
        positions = self._broker.committed_offsets
        for group in positions.names(Protocol.TUBEMQ):
            marks = positions.positions(Protocol.TUBEMQ, group)
            for partition_id, position in list(marks.items()):
                place = places.get(partition_id)
                if place is not None and position.mark >= 0:
                    collected.add(
                        "trilogue_tubemq_group_lag",
                        _lag(place[0].partitions[place[1]], position.mark),
                        group=group,
                        topic=str(place[0].name),
                        partition=str(place[1]),
                    )
            if step.is_over:
                await step.end()

    async def _gather_subscriptions(
        self, collected: _Collected, places: dict[int, tuple[Topic, int]], step: _Step
    ) -> None:
        if self._pulsar is None:
            return
        readers = self._pulsar.subscriptions
        for partition_id in self._broker.subscriptions.partition_ids():
            place = places.get(partition_id)
            if place is not None:
                labels = self._pulsar_labels(*place)
                for each in readers.iter_stats(place[0].partitions[place[1]]):
                    _add_subscription(collected, each, {**labels, "subscription": each.name})
                    self._add_rates_out(collected, each, partition_id, labels)
                    if step.is_over:
                        await step.end()
            if step.is_over:
                await step.end()

    def _add_rates_out(
        self,
        collected: _Collected,
        stats: SubscriptionStats,
        partition_id: int,
        labels: dict[str, str],
    ) -> None:
        """Add what a subscription gets per second, also to the rates of its topic."""
        key = partition_id, stats.name
        messages = self._rates.add(("messages", *key), stats.messages_out)
        size = self._rates.add(("bytes", *key), stats.bytes_out)
        named = {**labels, "subscription": stats.name}
        collected.add("pulsar_subscription_msg_rate_out", messages, **named)
        collected.add("pulsar_subscription_msg_throughput_out", size, **named)
        before = collected.rates_out.get(partition_id, (0.0, 0.0))
        collected.rates_out[partition_id] = before[0] + messages, before[1] + size

    async def _gather_topics(self, collected: _Collected, step: _Step) -> None:
        counts: dict[str, int] = {}
        topics = sorted(self._broker.cluster, key=lambda topic: topic.name)
        for topic in topics:
            await self._add_topic(collected, topic, step)
            space = str(topic.name.namespace_name)
            counts[space] = counts.get(space, 0) + len(topic.local_partitions)
        if self._pulsar is not None:
            for space, total in counts.items():
                collected.add("pulsar_topics_count", total, cluster=self._cluster, namespace=space)

    async def _add_topic(self, collected: _Collected, topic: Topic, step: _Step) -> None:
        appended = size = bytes_in = bytes_out = 0
        spelled = format_kafka(topic.name) if is_kafka_name(topic.name) else ""
        if spelled:
            collected.add("kafka_topic_partitions", len(topic.partitions), topic=spelled)
        for number, partition in enumerate(list(topic.partitions)):
            if step.is_over:
                await step.end()
            if partition.is_remote:
                continue
            plog = partition.log
            kept = plog.size_bytes
            bytes_in += plog.appended_bytes
            bytes_out += partition.bytes_out
            appended += plog.high_watermark
            size += kept
            if spelled:
                labels = {"topic": spelled, "partition": str(number)}
                collected.add("kafka_topic_partition_current_offset", plog.high_watermark, **labels)
                collected.add("kafka_topic_partition_oldest_offset", plog.start_offset, **labels)
            if self._pulsar is not None:
                self._add_pulsar_topic(self._pulsar, collected, topic, number, kept)
        if spelled:
            for what, value in (
                ("messagesin", appended),
                ("bytesin", bytes_in),
                ("bytesout", bytes_out),
            ):
                name = f"kafka_server_brokertopicmetrics_{what}_total"
                collected.add(name, value, topic=spelled)
        collected.add("trilogue_topic_messages_total", appended, topic=str(topic.name))
        collected.add("trilogue_topic_bytes", size, topic=str(topic.name))

    def _add_pulsar_topic(
        self, pulsar: PulsarGateway, collected: _Collected, topic: Topic, number: int, kept: int
    ) -> None:
        partition = topic.partitions[number]
        partition_id = partition.partition_id
        labels = self._pulsar_labels(topic, number)
        writers = self._broker.writers.get(partition_id)
        names = {
            *self._broker.subscriptions.of_partition(partition_id),
            *pulsar.subscriptions.of(partition_id),
        }
        appended, appended_bytes = partition.log.high_watermark, partition.log.appended_bytes
        rate_out, throughput_out = collected.rates_out.get(partition_id, (0.0, 0.0))
        rates = self._rates
        for name, value in (
            ("pulsar_rate_in", rates.add(("appended", partition_id), appended)),
            ("pulsar_throughput_in", rates.add(("appended bytes", partition_id), appended_bytes)),
            ("pulsar_rate_out", rate_out),
            ("pulsar_throughput_out", throughput_out),
            ("pulsar_subscriptions_count", len(names)),
            ("pulsar_producers_count", len(list(writers or ()))),
            ("pulsar_consumers_count", pulsar.subscriptions.consumer_count(partition_id)),
            ("pulsar_storage_size", kept),
            ("pulsar_in_messages_total", appended),
            ("pulsar_in_bytes_total", appended_bytes),
        ):
            collected.add(name, value, **labels)

    def _pulsar_labels(self, topic: Topic, number: int) -> dict[str, str]:
        return {
            "cluster": self._cluster,
            "namespace": str(topic.name.namespace_name),
            "topic": format_pulsar(topic.name, number if topic.partitioned else None),
        }


class _Step:
    """The time that the gathering has had in this loop iteration."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until_s = monotonic() + STEP_S

    @property
    def is_over(self) -> bool:
        """Whether others are to be served first."""
        return self._monotonic() >= self._until_s

    async def end(self) -> None:
        """Let others be served, and begin the next step."""
        await next_step()
        self._until_s = self._monotonic() + STEP_S


class _Collected:
    """The series so far, up to a number of them."""

    def __init__(self, series_max: int) -> None:
        self.samples: dict[str, list[tuple[Labels, float]]] = {}
        self.rates_out: dict[int, tuple[float, float]] = {}  # messages and bytes, by partition id
        self._left = series_max

    def add(self, name: str, value: float, **labels: str) -> None:
        """Add one series; raises TooManySeriesError."""
        if self._left <= 0:
            raise TooManySeriesError
        self._left -= 1
        self.samples.setdefault(name, []).append((labels, value))

    def metrics(self) -> list[Metric]:
        """Return them by name."""
        return [
            Metric(name, _kind(name), DOCS[name], samples) for name, samples in self.samples.items()
        ]


def _kind(name: str) -> Literal["counter", "gauge"]:
    return "counter" if name.endswith(COUNTER_END) else "gauge"


def _lag(partition: Partition, offset: int) -> int:
    plog = partition.log
    return max(0, plog.high_watermark - max(offset, plog.start_offset))


def _add_subscription(
    collected: _Collected, stats: SubscriptionStats, labels: dict[str, str]
) -> None:
    for name, value in (
        ("pulsar_subscription_back_log", stats.backlog),
        ("pulsar_subscription_back_log_no_delayed", stats.backlog - stats.delayed),
        ("pulsar_subscription_delayed", stats.delayed),
        ("pulsar_subscription_unacked_messages", stats.unacked_messages),
        ("pulsar_subscription_blocked_on_unacked_messages", int(stats.blocked_on_unacked)),
        ("pulsar_subscription_consumers_count", len(stats.consumers)),
        ("pulsar_subscription_total_msg_expired", stats.expired),
        ("pulsar_out_messages_total", stats.messages_out),
        ("pulsar_out_bytes_total", stats.bytes_out),
    ):
        collected.add(name, value, **labels)
