"""Topics with chance's messages, and chance's options of a query, for tests of two readers."""

from __future__ import annotations

import json
import random
from typing import NamedTuple

import confluent_kafka

from tests.server import Server
from tests.spark.rooms import BEGAN_MS, make_topic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BYTES = (None, b"", b"v", b"\xff\x00", "\N{SNOWMAN}".encode(), bytes(3_000))
HEADERS = [("a", b"1"), ("a", None), ("", b""), ("\N{SNOWMAN}", bytes(range(256)))]


class RandomTopic(NamedTuple):
    """A topic, and the end of each of its partitions."""

    name: str
    ends: list[int]


def make_random_topic(server: Server, dice: random.Random, **settings: str) -> RandomTopic:
    """Write rounds of plain, committed and aborted messages, with chance's codecs and times."""
    partitions = dice.randint(1, 4)
    topic = make_topic(server, partitions, **settings)
    for number in range(dice.randint(1, 6)):
        kind = dice.choice(("plain", "commit", "abort"))
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": server.kafka,
                "compression.type": dice.choice(CODECS),
                "batch.num.messages": dice.choice((1, 3, 50)),
                **({} if kind == "plain" else {"transactional.id": f"{topic}-{number}"}),
            }
        )
        if kind != "plain":
            producer.init_transactions(90)
            producer.begin_transaction()
        for _ in range(dice.randint(1, 60)):
            _produce_one(producer, topic, dice, partitions)
        assert producer.flush(90) == 0
        if kind != "plain":
            (producer.commit_transaction if kind == "commit" else producer.abort_transaction)(90)
    return RandomTopic(topic, _find_ends(server, topic, partitions))


def _produce_one(
    producer: confluent_kafka.Producer, topic: str, dice: random.Random, partitions: int
) -> None:
    producer.produce(
        topic,
        key=dice.choice((None, b"", *(b"k%d" % each for each in range(5)))),
        value=dice.choice((*BYTES, b"%d" % dice.getrandbits(64))),
        partition=dice.randrange(partitions),
        timestamp=BEGAN_MS + dice.randrange(100),
        headers=dice.sample(HEADERS, dice.randrange(len(HEADERS) + 1)),
    )


def _find_ends(server: Server, topic: str, partitions: int) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.kafka, "group.id": "ends"})
    ends = [
        consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, each), timeout=90)[1]
        for each in range(partitions)
    ]
    consumer.close()
    return ends


def choose_topics(dice: random.Random, topics: list[RandomTopic]) -> dict[str, str]:
    """Name topics by one of the three options; `assign` leaves partitions out."""
    chosen = dice.sample(topics, dice.randint(1, len(topics)))
    way = dice.choice(("subscribe", "subscribePattern", "assign"))
    if way == "subscribe":
        return {way: ",".join(each.name for each in chosen)}
    if way == "subscribePattern":
        return {way: "|".join(each.name for each in chosen)}
    parts = {
        each.name: sorted(dice.sample(range(len(each.ends)), dice.randint(1, len(each.ends))))
        for each in chosen
    }
    return {way: json.dumps(parts)}


def choose_partitions(options: dict[str, str], topics: list[RandomTopic]) -> dict[str, list[int]]:
    """Return the partitions that the option of `choose_topics` means."""
    if "assign" in options:
        return dict(json.loads(options["assign"]))
    (text,) = options.values()
    names = text.replace("|", ",").split(",")
    return {each.name: [*range(len(each.ends))] for each in topics if each.name in names}


def choose_start(dice: random.Random, wanted: dict[str, list[int]], ends: dict[str, list[int]]):
    """Return options of where to begin: an offset, or the first message since a time."""
    way = dice.choice(("none", "earliest", "offsets", "time", "times"))
    if way == "offsets":
        offsets = {
            topic: {str(each): dice.choice((-2, dice.randint(0, ends[topic][each])))
                    for each in numbers}
            for topic, numbers in wanted.items()
        }  # fmt: skip
        return {"startingOffsets": json.dumps(offsets)}
    if way == "times":
        times = {
            topic: {str(each): BEGAN_MS + dice.randrange(120) for each in numbers}
            for topic, numbers in wanted.items()
        }
        strategy = {"startingOffsetsByTimestampStrategy": "latest"}
        return {"startingOffsetsByTimestamp": json.dumps(times), **strategy}
    if way == "time":
        strategy = {"startingOffsetsByTimestampStrategy": "latest"}
        return {"startingTimestamp": str(BEGAN_MS + dice.randrange(120)), **strategy}
    return {} if way == "none" else {"startingOffsets": "earliest"}


def choose_end(dice: random.Random, wanted: dict[str, list[int]], ends: dict[str, list[int]]):
    """Return options of where a batch ends."""
    way = dice.choice(("none", "latest", "offsets", "time", "times"))
    if way == "offsets":
        offsets = {
            topic: {str(each): dice.choice((-1, dice.randint(0, ends[topic][each])))
                    for each in numbers}
            for topic, numbers in wanted.items()
        }  # fmt: skip
        return {"endingOffsets": json.dumps(offsets)}
    if way == "times":
        times = {
            topic: {str(each): BEGAN_MS + dice.randrange(120) for each in numbers}
            for topic, numbers in wanted.items()
        }
        return {"endingOffsetsByTimestamp": json.dumps(times)}
    if way == "time":
        return {"endingTimestamp": str(BEGAN_MS + dice.randrange(120))}
    return {} if way == "none" else {"endingOffsets": "latest"}


def choose_division(dice: random.Random) -> dict[str, str]:
    """Return options of how a read is divided among tasks."""
    made = {}
    if dice.random() < 0.5:
        made["minPartitions"] = str(dice.randint(1, 9))
    if dice.random() < 0.3:
        made["maxRecordsPerPartition"] = str(dice.randint(5, 60))
    return made


def choose_readers(dice: random.Random) -> dict[str, str]:
    """Return options of what a row has."""
    return {
        "includeHeaders": dice.choice(("true", "false")),
        "kafka.isolation.level": dice.choice(("read_committed", "read_uncommitted")),
    }
