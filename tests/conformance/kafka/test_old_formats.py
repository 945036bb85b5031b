"""Message sets of before 2017: the same sets, refusals and messages as a real Kafka 3.9.1.

Requests built by hand show exactly what is accepted and stored; then clients of those years, and
present clients configured for old brokers, write what present clients read, and the reverse.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from struct import pack
from zlib import crc32

import pytest
from confluent_kafka.admin import NewTopic

from tests.brokers import Broker
from tests.conformance.asking import Asker
from tests.conformance.clients import Client, Record
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.kafka_old import OLD_IN_PROCESS, OLD_JAVA, OldKafkaPython
from tests.conformance.clients.kafka_programs import JAVA_2, JAVA_3
from tests.conformance.kafka.families.families import eventually
from tests.conformance.kafka.test_configs import call_admin
from tests.conformance.raw import batch_of, stored_batches
from tests.conformance.raw import fetch as fetch_now
from tests.conformance.raw import produce as produce_now
from tests.conformance.raw_sets import (
    APPEND_TIME,
    GZIP,
    ZSTD,
    Message,
    fetch,
    message,
    messages,
    produce,
    read_set,
    wrapper,
)
from trilogue.entry.entry import Record as StoredRecord
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.wire.kafka.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TODAY = Confluent()
TIME = 1_600_000_000_000
HOUR_MS = 3_600_000
OLD_CODECS = ("none", "gzip", "snappy", "lz4")
RECORDS = [
    Record(
        b"key-%d" % number if number % 3 else None, b"the same words again " * 9 + b"%d" % number
    )
    for number in range(40)
]


def make(address: str, topic: str, **settings: object) -> str:
    """A topic with these settings that takes messages."""
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    call_admin(address, "create_topics", NewTopic(topic, 1, 1, config=given))
    eventually(lambda: fetch_now(address, topic, 0, 0, version=10).error, 0)
    return topic


# ---- what is taken, and as what it is stored

THREE = message(b"a") + message(b"b", offset=1) + message(b"c", offset=2)
TWO = message(b"a", timestamp=50) + message(b"b", timestamp=40, offset=1)
PLAIN = (0, 1, TIME, TIME)  # attributes, messages, first and latest time
TAKEN: dict[str, tuple[int, bytes, tuple[int, int, int, int]]] = {
    "magic 0 in v0": (0, message(b"v", b"k", magic=0), (0, 1, -1, -1)),
    "magic 0 in v1": (1, message(b"v", b"k", magic=0) * 2, (0, 2, -1, -1)),
    "magic 0 in v2": (2, message(b"v", b"k", magic=0), (0, 1, -1, -1)),
    "magic 1 in v0": (0, message(b"v"), PLAIN),
    "magic 1 in v2": (2, message(b"v"), PLAIN),
    "a batch in v0": (0, batch_of(b"v"), PLAIN),
    "a batch in v2": (2, batch_of(b"v"), PLAIN),
    "times": (2, TWO, (0, 2, 50, 50)),
    "no time": (2, message(b"v", timestamp=-1), (0, 1, -1, -1)),
    "neither key nor value": (2, message(None), PLAIN),
    "a kind of time in magic 0": (
        2,
        message(b"v", magic=0, attributes=APPEND_TIME),
        (0, 1, -1, -1),
    ),
    "the broker's kind of time": (2, message(b"v", attributes=APPEND_TIME), PLAIN),
    "attributes that mean nothing": (2, message(b"v", attributes=0x70), PLAIN),
    "a wrapper": (2, wrapper(THREE, offset=2), (GZIP, 3, TIME, TIME)),
    "a wrapper of magic 0": (1, wrapper(message(b"v", magic=0), magic=0), (GZIP, 1, -1, -1)),
    "a wrapper at 0": (2, wrapper(THREE, offset=0), (GZIP, 3, TIME, TIME)),
    "a wrapper at 99": (2, wrapper(THREE, offset=99), (GZIP, 3, TIME, TIME)),
    "a wrapper with times": (2, wrapper(TWO, offset=1, timestamp=70), (GZIP, 2, 50, 50)),
    "a wrapper with the broker's kind of time": (
        2,
        wrapper(TWO, offset=1, timestamp=70, attributes=GZIP | APPEND_TIME),
        (GZIP, 2, 70, 70),
    ),
    "offsets from 10": (
        2,
        wrapper(message(b"a", offset=10) + message(b"b", offset=12), offset=12),
        (GZIP, 2, TIME, TIME),
    ),
    "offsets that fall": (
        2,
        wrapper(message(b"a", offset=3) + message(b"b", offset=2), offset=12),
        (GZIP, 2, TIME, TIME),
    ),
    "a megabyte of zeros": (2, wrapper(message(bytes(5_000_000))), (GZIP, 1, TIME, TIME)),
}


@pytest.mark.parametrize("case", TAKEN)
def test_a_set_is_stored_as_one_batch(address: str, topic: str, case: str):
    make(address, topic)
    version, sent, stored = TAKEN[case]

    answer = produce(address, version, topic, sent)

    assert (answer.error, answer.offset, answer.time) == (0, 0, -1)
    (batch,) = stored_batches(address, topic)
    assert (
        batch.attributes,
        batch.record_count,
        batch.base_timestamp,
        batch.max_timestamp,
    ) == stored
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)


SUCCESS, CORRUPT, TOO_LARGE, BAD_TIME, NO_VERSION, ZSTD_HERE, INVALID = 0, 2, 10, 32, 35, 76, 87
REFUSED: dict[str, tuple[int, bytes, int]] = {
    "two batches": (2, batch_of(b"v") * 2, INVALID),
    "two magics": (2, message(b"v", magic=0) + message(b"v"), INVALID),
    "a wrong checksum": (2, message(b"v", crc=1), CORRUPT),
    "a wrong checksum later": (2, message(b"v") + message(b"v", crc=1), CORRUPT),
    "a wrong checksum within": (2, wrapper(message(b"v", crc=1)), CORRUPT),
    "a size that is too small": (2, pack(">qi", 0, 5) + b"12345", CORRUPT),
    "a negative size": (2, pack(">qi", 0, -5) + bytes(20), CORRUPT),
    "magic 3": (2, message(b"v", magic=3), CORRUPT),
    "magic -1": (2, message(b"v", magic=-1), CORRUPT),
    "the broker's kind of time, and none": (
        2,
        message(b"v", attributes=APPEND_TIME, timestamp=-1),
        BAD_TIME,
    ),
    "zstd": (2, message(b"v", attributes=ZSTD), INVALID),
    "a wrapper below its messages": (2, wrapper(THREE, offset=1), INVALID),
    "a message behind a wrapper": (2, wrapper(THREE, offset=2) + message(b"v"), INVALID),
    "a wrapper behind a message": (2, message(b"v") + wrapper(THREE, offset=2), INVALID),
    "two wrappers": (0, wrapper(message(b"v", magic=0), magic=0) * 2, INVALID),
    "a wrapper in a wrapper": (2, wrapper(wrapper(THREE, offset=2)), INVALID),
    "another magic within": (2, wrapper(message(b"v", magic=0)), INVALID),
    "another magic within magic 0": (1, wrapper(message(b"v"), magic=0), INVALID),
    "a wrapper with nothing in it": (2, wrapper(b""), INVALID),
    "a wrapper without a value": (2, message(None, attributes=GZIP), INVALID),
    "a wrapper with a part of a message": (2, wrapper(message(b"v")[:-2]), INVALID),
    "a message that is too large": (2, message(bytes(1_048_600)), TOO_LARGE),
    "messages that are too large together": (2, message(bytes(600_000)) * 2, TOO_LARGE),
}


@pytest.fixture(scope="module")
def plain(broker: Broker) -> str:
    return make(broker.address, f"refusals-{time.time_ns()}")


@pytest.mark.parametrize("case", REFUSED)
def test_a_set_is_refused_with_kafkas_code(address: str, plain: str, case: str):
    version, sent, code = REFUSED[case]

    assert produce(address, version, plain, sent) == (code, -1, -1, b"")


def with_tail(tail: bytes) -> bytes:
    body = pack(">bbqi", 1, 0, TIME, -1) + tail
    return pack(">qiI", 0, 4 + len(body), crc32(body)) + body


STRICTER: dict[str, tuple[bytes, int]] = {
    "cut": (message(b"v")[:-3], SUCCESS),
    "cut at the end": (message(b"v") * 2 + message(b"v")[:-3], SUCCESS),
    "cut within": (wrapper(THREE[:-2], offset=1), SUCCESS),
    "bytes after the value": (with_tail(pack(">i", 1) + b"vjunk"), SUCCESS),
    "a value of -2 bytes": (with_tail(pack(">i", -2)), SUCCESS),
    "a value longer than the message": (with_tail(pack(">i", 9) + b"v"), -1),
    "a time before all times": (message(b"v", timestamp=-2), -1),
    "a wrapper of nonsense": (message(b"nonsense", attributes=GZIP), -1),
}


@pytest.mark.parametrize("case", STRICTER)
def test_truncated_message_set_is_refused_where_kafka_drops_it(
    broker: Broker, address: str, plain: str, case: str
):
    """What a producer gets an ack for must be stored."""
    sent, theirs = STRICTER[case]

    answer = produce(address, 2, plain, sent)

    assert answer.error == (INVALID if broker.name == "trilogue" else theirs)


def test_a_set_without_messages_is_answered(address: str, plain: str):
    assert produce(address, 2, plain, b"") == (0, -1, -1, b"")


def test_the_brokers_times_replace_those_of_a_set(address: str, topic: str):
    make(address, topic, message_timestamp_type="LogAppendTime")

    answers = [produce(address, 2, topic, sent) for sent in (message(b"v"), wrapper(TWO, offset=1))]
    old = produce(address, 1, topic, message(b"v", magic=0))
    claiming = produce(address, 2, topic, message(b"v", attributes=APPEND_TIME))

    assert [each.offset for each in (*answers, old)] == [0, 1, 3]
    assert claiming.error == BAD_TIME
    batches = stored_batches(address, topic)
    assert [each.attributes for each in batches] == [8, 9, 8]
    assert [each.max_timestamp for each in batches[:2]] == [each.time for each in answers]
    assert [each.base_timestamp for each in batches] == [TIME, 50, -1]


def test_a_compacted_topic_takes_messages_with_a_key_only(address: str, topic: str):
    make(address, topic, cleanup_policy="compact")

    found = [
        produce(address, 2, topic, sent).error
        for sent in (message(b"v"), wrapper(THREE, offset=2), message(b"v", b"k"))
    ]

    assert found == [INVALID, INVALID, SUCCESS]


# ---- limits of time, codecs of topics


def test_times_of_messages_are_limited_by_the_topic(address: str, topic: str):
    make(
        address,
        topic,
        message_timestamp_before_max_ms=HOUR_MS,
        message_timestamp_after_max_ms=HOUR_MS,
    )
    now = time.time_ns() // 1_000_000

    old = [
        produce(address, 2, topic, message(b"v", timestamp=each)).error
        for each in (now, now - 2 * HOUR_MS, now + 2 * HOUR_MS, -1)
    ]
    new = [
        produce_now(address, topic, 0, batch_of(b"v", each))
        for each in (now, now - 2 * HOUR_MS, now + 2 * HOUR_MS, -1)
    ]

    assert old == new == [SUCCESS, BAD_TIME, BAD_TIME, SUCCESS]


def test_messages_that_are_not_taken_are_named(address: str, topic: str):
    """KIP-467: Produce v8 and later."""
    make(address, topic, cleanup_policy="compact", message_timestamp_before_max_ms=HOUR_MS)
    now = time.time_ns() // 1_000_000
    batches = [
        [(now, b"k"), (5, None), (now, None), (6, b"k")],
        [(now, b"k"), (now, None), (now, b"k")],
    ]

    found = []
    with Asker(address) as client:
        for each in batches:
            records = [StoredRecord(at, when, key, b"v") for at, (when, key) in enumerate(each)]
            data = PartitionProduceData(index=0, records=build_batch(records))
            topics = [TopicProduceData(name=topic, partition_data=[data])]
            answer = client.request(ProduceRequest(acks=-1, timeout_ms=9_000, topic_data=topics), 9)
            (one,) = answer.responses[0].partition_responses
            found.append((one.error_code, [error.batch_index for error in one.record_errors]))

    assert found == [(BAD_TIME, [1, 2, 3]), (INVALID, [1])]


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topics_codec_is_that_of_its_batches(address: str, topic: str, wanted: str):
    make(address, topic, compression_type=wanted)
    writers: list[tuple[Client, str]] = [(TODAY, "none"), (TODAY, "zstd"), (TODAY, "gzip")]
    old = OldKafkaPython(0, 10)

    for client, codec in writers:
        client.write(address, topic, RECORDS, codec=codec, idempotent=True)
    old.write(address, topic, RECORDS, codec="gzip")

    codec = "none" if wanted == "uncompressed" else wanted
    assert {codec} == {each.codec for each in stored_batches(address, topic, version=10)}
    reads = TODAY.read(address, topic, 4 * len(RECORDS))
    assert [each.value for each in reads] == 4 * [each.value for each in RECORDS]


@pytest.mark.java
@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_java_reads_what_a_topics_level_made(address: str, topic: str, codec: str):
    level = {"gzip": 9, "lz4": 12, "zstd": 12}[codec]
    make(address, topic, compression_type=codec, **{f"compression_{codec}_level": level})

    TODAY.write(address, topic, RECORDS)

    assert {codec} == {each.codec for each in stored_batches(address, topic, version=10)}
    assert contents(JAVA_3.read(address, topic, len(RECORDS))) == contents(RECORDS)


# ---- what comes back


@pytest.mark.parametrize("version", range(4))
def test_batches_come_back_as_messages(address: str, topic: str, version: int):
    make(address, topic)
    for sent in (message(b"0", b"k", magic=0), message(None), wrapper(TWO, offset=1)):
        produce(address, 2, topic, sent)
    produce_now(address, topic, 0, batch_of(b"4", TIME))

    answer = fetch(address, version, topic, 0)

    magic = 0 if version <= 1 else 1
    times = [-1, TIME, 50, 40, TIME] if magic else [-1] * 5
    keys, values = [b"k", None, None, None, None], [b"0", None, b"a", b"b", b"4"]
    assert (answer.error, answer.offset) == (0, 5)
    assert messages(answer.records) == [
        Message(at, magic, 0, times[at], keys[at], values[at]) for at in range(5)
    ]
    shallow = [(each.offset, each.attributes) for each in read_set(answer.records)]
    assert shallow == [(0, 0), (1, 0), (3, GZIP), (4, 0)]


@pytest.mark.parametrize("version", range(4))
def test_fetch_of_old_formats_starts_at_the_fetch_offset(address: str, topic: str, version: int):
    make(address, topic)
    produce(address, 2, topic, THREE)
    produce(address, 2, topic, wrapper(THREE, offset=2))

    offsets = [
        [each.offset for each in messages(fetch(address, version, topic, offset).records)]
        for offset in (1, 4, 6)
    ]

    assert offsets == [[1, 2, 3, 4, 5], [3, 4, 5], []]
    assert fetch(address, version, topic, 7).error == 1


def test_times_of_the_broker_come_back_as_such(address: str, topic: str):
    make(address, topic, message_timestamp_type="LogAppendTime")
    times = [
        produce(address, 2, topic, sent).time for sent in (message(b"a"), wrapper(TWO, offset=1))
    ]

    found = list(read_set(fetch(address, 3, topic, 0).records))

    assert [each.attributes for each in found] == [APPEND_TIME, APPEND_TIME | GZIP]
    assert [each.timestamp for each in found] == times


def test_one_message_comes_whatever_the_limit(address: str, topic: str):
    """KIP-74; what is read of it in version 3."""
    make(address, topic)
    produce(address, 2, topic, message(b"a" * 1000))
    produce(address, 2, topic, message(b"b"))

    found = messages(fetch(address, 3, topic, 0, max_bytes=10).records)

    assert [each.offset for each in found] == [0]


def test_a_topic_may_refuse_old_readers(address: str, topic: str):
    """KIP-283."""
    make(address, topic, message_downconversion_enable="false")
    produce(address, 2, topic, message(b"a"))

    answers = [fetch(address, version, topic, 0) for version in range(4)]

    assert {(each.error, each.offset, each.records) for each in answers} == {(NO_VERSION, -1, b"")}
    assert fetch_now(address, topic, 0, 0).error == 0


def test_zstd_is_not_for_old_readers(address: str, topic: str):
    """KIP-110."""
    make(address, topic)
    produce(address, 2, topic, message(b"a"))
    TODAY.write(address, topic, RECORDS, codec="zstd")

    first, second = fetch(address, 3, topic, 0), fetch(address, 3, topic, 1)

    assert [each.offset for each in messages(first.records)] == [0]
    assert (second.error, second.records) == (ZSTD_HERE, b"")


# ---- clients of then and now


def contents(found: list[object]) -> list[tuple[bytes | None, bytes | None]]:
    return [(each.key, each.value) for each in found]  # type: ignore[attr-defined]


def old_clients() -> list[object]:
    found = [pytest.param(each, id=each.name) for each in OLD_IN_PROCESS]
    java = [*OLD_JAVA, JAVA_2]
    return found + [pytest.param(each, id=each.name, marks=pytest.mark.java) for each in java]


def codecs_of(client: object) -> tuple[str, ...]:
    """kafka-python writes LZ4 neither for 0.8 nor as those brokers want it."""
    is_early = isinstance(client, OldKafkaPython) and client.version < (0, 10)
    return OLD_CODECS[:3] if is_early else OLD_CODECS


@pytest.mark.parametrize("client", old_clients())
def test_old_clients_and_todays_read_what_both_wrote(address: str, topic: str, client: Client):
    for codec in codecs_of(client):
        where = make(address, f"{topic}.{codec}")

        client.write(address, where, RECORDS, codec=codec)
        TODAY.write(address, where, RECORDS, codec=codec, idempotent=True)

        assert {codec} == {each.codec for each in stored_batches(address, where)}
        for reader in (client, TODAY):
            reads = reader.read(address, where, 2 * len(RECORDS))
            assert contents(reads) == contents(RECORDS) * 2
            assert [each.offset for each in reads] == list(range(80))


@pytest.mark.java
@pytest.mark.parametrize("client", OLD_JAVA, ids=lambda each: each.name)
def test_old_members_of_a_group_go_on_where_it_was(address: str, topic: str, client: Client):
    make(address, topic)
    client.write(address, topic, RECORDS)
    assert len(client.read(address, topic, len(RECORDS), group=topic)) == len(RECORDS)
    client.write(address, topic, RECORDS[:3], acks="1")

    reads = client.read(address, topic, 3, group=topic)

    assert [each.offset for each in reads] == [40, 41, 42]


@pytest.fixture(scope="module", autouse=True)
def _programs_end() -> Iterator[None]:
    yield
    for each in OLD_JAVA:
        each.stop()
