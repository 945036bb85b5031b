"""A rebalance storm: members join and leave every second, and the group skips no message.

Twenty librdkafka members; some leave and others join each second, for a minute. Each message is
read at least once, no committed offset moves backwards, and after the last change the group
becomes stable with every partition assigned.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from itertools import count

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.clients import DEADLINE
from tests.conformance.clients.base import Deadline
from tests.conformance.clients.confluent import Confluent

GROUP = "storm"
PARTITIONS = 12
MEMBERS = 20
CHANGES = 3  # members that leave, and that come, in a second
SECONDS = 60
MESSAGES_A_SECOND = 200
SETTLES_WITHIN = 60.0
COMMIT_EVERY = 5  # messages
SHARED_OUT = "consumer"  # by the server: KIP-848

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


class Member(threading.Thread):
    """Reads and commits until `over` is set."""

    def __init__(self, address: str, topic: str, strategy: str, seen: Counter[bytes]) -> None:
        super().__init__(daemon=True)
        kind = "group.protocol" if strategy == SHARED_OUT else "partition.assignment.strategy"
        self.consumer: Consumer = Confluent.consumer(address, GROUP, {kind: strategy})
        self.consumer.subscribe([topic])
        self.seen = seen
        self.over = threading.Event()
        self.has: set[int] = set()

    def run(self) -> None:
        read = 0
        while not self.over.is_set():
            message = self.consumer.poll(0.1)
            self.has = {each.partition for each in self.consumer.assignment()}
            if message is None or message.error() is not None:
                continue
            self.seen[message.value()] += 1
            read += 1
            if read % COMMIT_EVERY == 0:
                self.commit()
        self.commit()
        self.consumer.close()

    def commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException:  # of an old generation: another member reads it again
            return


class Watch(threading.Thread):
    """Fetches the committed offsets all the time; `went_back` must stay empty."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.admin = AdminClient({"bootstrap.servers": address})
        self.places = [TopicPartition(topic, each) for each in range(PARTITIONS)]
        self.last = dict.fromkeys(range(PARTITIONS), -1)
        self.went_back: list[str] = []
        self.looks = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.05):
            self.look()

    def look(self) -> None:
        request = [ConsumerGroupTopicPartitions(GROUP, self.places)]
        (answer,) = self.admin.list_consumer_group_offsets(request).values()
        for each in answer.result(DEADLINE).topic_partitions:
            offset = max(each.offset, -1)
            if offset < self.last[each.partition]:
                self.went_back.append(f"{each.partition}: {self.last[each.partition]} to {offset}")
            self.last[each.partition] = offset
        self.looks += 1


def state_of(admin: AdminClient) -> str:
    (group,) = admin.describe_consumer_groups([GROUP]).values()
    found = group.result(DEADLINE)
    return f"{found.state.name}, {len(found.members)} members"


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky", SHARED_OUT])
def test_nothing_is_passed_over_while_members_come_and_go(address: str, topic: str, strategy: str):
    chance = random.Random(strategy)
    admin = AdminClient({"bootstrap.servers": address})
    (made,) = admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values()
    made.result(DEADLINE)
    producer, numbers, sent = Confluent.producer(address), count(), set()
    seen: Counter[bytes] = Counter()
    watch = Watch(address, topic)
    watch.start()
    members = [Member(address, topic, strategy, seen) for _ in range(MEMBERS)]
    leaving: list[Member] = []
    for member in members:
        member.start()

    began = time.monotonic()
    for second in range(SECONDS):
        for _ in range(MESSAGES_A_SECOND):
            value = str(next(numbers)).encode()
            sent.add(value)
            producer.produce(topic, value, partition=chance.randrange(PARTITIONS))
        producer.poll(0)
        for _ in range(CHANGES):
            gone = members.pop(chance.randrange(len(members)))
            gone.over.set()
            leaving.append(gone)
            members.append(Member(address, topic, strategy, seen))
            members[-1].start()
        watch.over.wait(max(0.0, began + second + 1 - time.monotonic()))
    assert producer.flush(DEADLINE) == 0

    settled = Deadline("every partition at one member", SETTLES_WITHIN)
    while sorted(each for member in members for each in member.has) != list(range(PARTITIONS)):
        settled.check((state_of(admin), [sorted(member.has) for member in members]))
        watch.over.wait(0.05)
    drained = Deadline("every message", DEADLINE)
    while not seen.keys() >= sent:
        drained.check(f"{len(sent - seen.keys())} are missing")
        watch.over.wait(0.1)
    for member in members:
        member.over.set()
    for member in [*members, *leaving]:
        member.join(DEADLINE)
    watch.look()
    watch.over.set()
    watch.join(DEADLINE)

    assert watch.went_back == []
    assert watch.looks > SECONDS
    assert min(watch.last.values()) > 0
