"""What every Pulsar library is held to: the same rules for Python, Java and Go."""

from __future__ import annotations

import itertools

import pytest

from tests.conformance.clients.base import Deadline
from tests.conformance.clients.pulsar import ClientError, Connection, In, Out, Receiver, connect
from tests.conformance.clients.pulsar_libraries import ALL, each
from tests.conformance.pulsar.pulsar_admin import Admin

CODECS = ("none", "lz4", "zlib", "zstd", "snappy")
SOME = [
    Out(b"plain"),
    Out(b"keyed", key="k1"),
    Out(b"ordered", key="k2", ordering_key="o2"),
    Out(b"\x00\xff" * 300, properties={"a": "1", "b": "zwei ü"}, event_time=1_700_000_000_123),
    Out(b"x" * 200_000, key="large"),
]
EMPTY = Out(b"", key="nothing")  # Go throws away one that is not in a batch, C++ one in zlib
LIBRARIES = pytest.mark.parametrize("library", each())


def numbers(first: int, last: int, **words: object) -> list[Out]:
    return [Out(b"%d" % number, **words) for number in range(first, last)]  # type: ignore[arg-type]


def values(reads: list[In]) -> list[int]:
    return [int(read.value or b"-1") for read in reads]


@LIBRARIES
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_messages_come_back_as_they_were(connection: Connection, topic: str, batching: bool):
    """In every codec; one consumer reads them all."""
    reader = connection.consumer(topic, "s", earliest=True)
    for codec in CODECS:
        producer = connection.producer(topic, batching=batching, compression=codec)
        sent = [*SOME, EMPTY] if batching else SOME
        ids = producer.send(*sent)

        reads = reader.receive(len(sent))

        assert [(r.content, r.ordering_key) for r in reads] == [
            ((m.value, m.key, dict(m.properties), m.event_time or 0), m.ordering_key) for m in sent
        ]
        assert len(ids) == len(sent)
        producer.close()


@LIBRARIES
def test_offsets_count_the_messages(connection: Connection, topic: str):
    """An entry's id plus the index in its batch grows, whatever was batched."""
    consumer = connection.consumer(topic, "s", earliest=True)
    for batching in (True, False, True):
        producer = connection.producer(topic, batching=batching)
        producer.send(*numbers(0, 20))
        producer.close()

    reads = consumer.receive(60)

    places = [(read.ledger, read.entry, read.batch) for read in reads]
    assert places == sorted(places)
    assert len(set(places)) == 60
    assert values(reads) == [*range(20)] * 3


@LIBRARIES
def test_chunked_messages_come_back_whole(connection: Connection, topic: str):
    large = bytes(range(256)) * 24 * 1024  # 6 MiB, above what a frame may hold
    consumer = connection.consumer(topic, "s", earliest=True)
    producer = connection.producer(topic, chunking=True)

    producer.send(Out(b"before"), Out(large, key="k"), Out(b"after"))

    reads = consumer.receive(3)
    assert [read.value for read in reads] == [b"before", large, b"after"]
    assert reads[1].key == "k"
    consumer.ack(*reads)
    consumer.close()
    assert connection.consumer(topic, "s").nothing_comes()


@LIBRARIES
def test_partitions_share_the_messages(connection: Connection, admin: Admin, topic: str):
    admin.make_partitioned(topic, 3)
    consumer = connection.consumer(topic, "s", earliest=True)
    producer = connection.producer(topic)

    producer.send(*numbers(0, 30))

    reads = consumer.receive(30)
    assert sorted(values(reads)) == [*range(30)]
    assert {read.topic.rpartition("-partition-")[2] for read in reads} == {"0", "1", "2"}
    whole = f"persistent://public/default/{topic}"
    assert connection.partitions(whole) == [f"{whole}-partition-{n}" for n in range(3)]


@LIBRARIES
def test_messages_of_a_key_stay_together(connection: Connection, admin: Admin, topic: str):
    admin.make_partitioned(topic, 3)
    consumer = connection.consumer(topic, "s", earliest=True)
    producer = connection.producer(topic, batching=True)

    producer.send(*(Out(b"%d" % n, key=f"key-{n % 7}") for n in range(70)))

    places: dict[str | None, set[str]] = {}
    for read in consumer.receive(70):
        places.setdefault(read.key, set()).add(read.topic)
    assert len(places) == 7
    assert all(len(topics) == 1 for topics in places.values())


@LIBRARIES
def test_an_exclusive_subscription_has_one_consumer(connection: Connection, topic: str):
    first = connection.consumer(topic, "s")

    with pytest.raises(ClientError, match=r"(?i)busy|exclusive"):
        connection.consumer(topic, "s")

    first.close()
    connection.consumer(topic, "s").close()


@LIBRARIES
def test_a_second_producer_of_a_name_is_refused(connection: Connection, topic: str):
    connection.producer(topic, name="the-one")

    with pytest.raises(ClientError, match=r"(?i)busy|name"):
        connection.producer(topic, name="the-one")


@LIBRARIES
def test_shared_consumers_divide_the_messages(connection: Connection, topic: str):
    consumers = [
        connection.consumer(topic, "s", type="shared", earliest=True, queue=10) for _ in range(3)
    ]
    connection.producer(topic).send(*numbers(0, 90))

    shares = drained(consumers, 90)

    assert sorted(itertools.chain(*(values(share) for share in shares))) == [*range(90)]
    assert all(share for share in shares)


def drained(consumers: list[Receiver], count: int) -> list[list[In]]:
    """Receive and ack in turn until `count` came to all of them together."""
    shares: list[list[In]] = [[] for _ in consumers]
    deadline = Deadline(f"{count} messages")
    while sum(map(len, shares)) < count:
        deadline.check(shares)
        for consumer, share in zip(consumers, shares, strict=True):
            reads = consumer.receive_up_to(5, 0.05)
            consumer.ack(*reads)
            share.extend(reads)
    assert sum(map(len, shares)) == count
    return shares


@LIBRARIES
def test_one_failover_consumer_is_active_and_another_takes_over(connection: Connection, topic: str):
    consumers = [
        connection.consumer(topic, "s", type="failover", earliest=True, name=f"c{number}")
        for number in range(2)
    ]
    producer = connection.producer(topic)
    producer.send(*numbers(0, 10))

    shares = drained(consumers, 10)
    active = max(range(2), key=lambda number: len(shares[number]))
    assert values(shares[active]) == [*range(10)]
    consumers[active].close()
    producer.send(*numbers(10, 20))

    reads = consumers[1 - active].receive(10)
    assert values(reads) == [*range(10, 20)]


@LIBRARIES
def test_a_key_goes_to_one_consumer_in_order(connection: Connection, topic: str):
    consumers = [
        connection.consumer(topic, "s", type="key_shared", earliest=True) for _ in range(3)
    ]
    producer = connection.producer(topic)
    producer.send(*(Out(b"%d" % n, key=f"key-{n % 20}") for n in range(200)))

    shares = drained(consumers, 200)

    owners: dict[str | None, set[int]] = {}
    for number, share in enumerate(shares):
        for read in share:
            owners.setdefault(read.key, set()).add(number)
    assert len(owners) == 20
    assert all(len(numbers) == 1 for numbers in owners.values())
    for share in shares:
        for key in {read.key for read in share}:
            of_key = [int(read.value or b"") for read in share if read.key == key]
            assert of_key == sorted(of_key)


@LIBRARIES
def test_batches_by_key_go_to_their_consumers(connection: Connection, topic: str):
    consumers = [
        connection.consumer(topic, "s", type="key_shared", earliest=True) for _ in range(2)
    ]
    producer = connection.producer(topic, batching=True, by_key=True)
    producer.send(*(Out(b"%d" % n, key=f"key-{n % 10}") for n in range(100)))

    shares = drained(consumers, 100)

    keys = [{read.key for read in share} for share in shares]
    assert keys[0].isdisjoint(keys[1])
    assert len(keys[0] | keys[1]) == 10


@LIBRARIES
def test_sticky_ranges_select_the_consumer_of_a_key(connection: Connection, topic: str):
    low = connection.consumer(topic, "s", type="key_shared", ranges=[[0, 32767]])
    high = connection.consumer(topic, "s", type="key_shared", ranges=[[32768, 65535]])
    with pytest.raises(ClientError):
        connection.consumer(topic, "s", type="key_shared", ranges=[[100, 200]])
    connection.producer(topic).send(*(Out(b"%d" % n, key=f"key-{n}") for n in range(50)))

    shares = drained([low, high], 50)

    assert all(share for share in shares)


@LIBRARIES
def test_nacked_message_is_redelivered_and_counted(connection: Connection, topic: str):
    consumer = connection.consumer(topic, "s", type="shared", earliest=True)
    connection.producer(topic).send(*numbers(0, 5))
    reads = consumer.receive(5)
    consumer.ack(*(read for read in reads if read.value != b"3"))

    for count in (1, 2):
        consumer.nack(next(read for read in reads if read.value == b"3"))
        reads = consumer.receive(1)
        assert [(read.value, read.redelivery) for read in reads] == [(b"3", count)]

    consumer.ack(*reads)
    assert consumer.nothing_comes()


@LIBRARIES
def test_unacked_messages_are_redelivered_to_the_next_consumer(connection: Connection, topic: str):
    consumer = connection.consumer(topic, "s", type="shared", earliest=True)
    connection.producer(topic).send(*numbers(0, 10))
    reads = consumer.receive(10)
    consumer.ack(*reads[:3], *reads[5:8])
    consumer.close()

    rest = connection.consumer(topic, "s", type="shared").receive(4)

    assert values(rest) == [3, 4, 8, 9]


@LIBRARIES
def test_a_cumulative_ack_acks_all_before_it(connection: Connection, topic: str):
    consumer = connection.consumer(topic, "s", earliest=True)
    producer = connection.producer(topic)
    producer.send(*numbers(0, 10))
    consumer.ack(consumer.receive(10)[6], cumulative=True)
    consumer.close()

    consumer = connection.consumer(topic, "s")

    assert values(consumer.receive(3)) == [7, 8, 9]
    assert consumer.nothing_comes()


@LIBRARIES
def test_a_part_of_a_batch_can_be_acked(connection: Connection, topic: str):
    words = {"type": "shared", "earliest": True, "batch_index": True}
    consumer = connection.consumer(topic, "s", **words)
    connection.producer(topic, batching=True, batch_delay_ms=200).send(*numbers(0, 10))
    reads = consumer.receive(10)
    assert len({read.entry for read in reads}) == 1
    consumer.ack(*reads[:4], *reads[6:9])
    consumer.close()

    rest = connection.consumer(topic, "s", **words)

    assert values(rest.receive(3)) == [4, 5, 9]
    assert rest.nothing_comes()


@pytest.mark.parametrize("library", each(can="receipts"))
@pytest.mark.parametrize("cumulative", [False, True], ids=["single", "cumulative"])
def test_acks_are_answered_on_request(connection: Connection, topic: str, cumulative: bool):
    consumer = connection.consumer(topic, "s", earliest=True, receipts=True)
    connection.producer(topic).send(*numbers(0, 10))
    reads = consumer.receive(10)

    if cumulative:
        consumer.ack(reads[-1], cumulative=True)
    else:
        consumer.ack(*reads)

    consumer.close()
    assert connection.consumer(topic, "s").nothing_comes()


@LIBRARIES
def test_dead_letters_go_to_their_topic(connection: Connection, topic: str):
    dead = connection.consumer(f"{topic}-dead", "d", earliest=True)
    consumer = connection.consumer(
        topic, "s", type="shared", earliest=True, dead_after=2, dead_topic=f"{topic}-dead"
    )
    connection.producer(topic).send(Out(b"bad", key="k", properties={"p": "q"}), Out(b"good"))

    seen = []
    for _ in range(4):
        reads = consumer.receive(1)
        seen += [(read.value, read.redelivery) for read in reads]
        for read in reads:
            consumer.ack(read) if read.value == b"good" else consumer.nack(read)

    (letter,) = dead.receive(1)
    assert (letter.value, letter.key, letter.properties["p"]) == (b"bad", "k", "q")
    assert sorted(seen) == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
    assert consumer.nothing_comes()


@pytest.mark.parametrize("library", each(can="retry"))
def test_reconsumed_message_is_retried_and_then_dead_lettered(connection: Connection, topic: str):
    words = {"dead_topic": f"{topic}-dead", "retry_topic": f"{topic}-retry", "retry": True}
    dead = connection.consumer(f"{topic}-dead", "d", earliest=True)
    consumer = connection.consumer(topic, "s", type="shared", earliest=True, dead_after=2, **words)
    connection.producer(topic).send(Out(b"again"))

    for _ in range(3):
        (read,) = consumer.receive(1)
        assert read.value == b"again"
        consumer.reconsume(read, delay_ms=50)

    assert [letter.value for letter in dead.receive(1)] == [b"again"]


@LIBRARIES
def test_a_dead_letter_topic_can_begin_with_a_subscription(
    connection: Connection, admin: Admin, topic: str
):
    consumer = connection.consumer(
        topic, "s", type="shared", earliest=True, dead_after=1, dead_topic=f"{topic}-dead",
        dead_subscription="made-with-it",
    )  # fmt: skip
    connection.producer(topic).send(Out(b"bad"))
    for _ in range(2):
        consumer.nack(*consumer.receive(1))
    deadline = Deadline("the dead letter's topic")
    while "made-with-it" not in admin.subscriptions(f"{topic}-dead"):
        deadline.check()
        consumer.receive_up_to(1, 0.1)

    letters = connection.consumer(f"{topic}-dead", "made-with-it")

    assert [letter.value for letter in letters.receive(1)] == [b"bad"]


@LIBRARIES
def test_unsubscribed_positions_are_forgotten(connection: Connection, topic: str):
    consumer = connection.consumer(topic, "s", earliest=True)
    producer = connection.producer(topic)
    producer.send(*numbers(0, 3))
    consumer.ack(*consumer.receive(3))
    consumer.unsubscribe()
    producer.send(*numbers(3, 5))

    again = connection.consumer(topic, "s")
    assert again.nothing_comes()
    producer.send(*numbers(5, 6))

    assert values(again.receive(1)) == [5]


@LIBRARIES
def test_one_consumer_reads_several_topics(connection: Connection, topic: str):
    names = [f"{topic}-{number}" for number in range(3)]
    consumer = connection.consumer(names, "s", earliest=True)
    for name in names:
        connection.producer(name).send(Out(name.encode()))

    reads = consumer.receive(3)

    assert sorted(read.value for read in reads if read.value) == [n.encode() for n in names]
    consumer.ack(*reads)


@pytest.mark.parametrize("library", each(can="later topics"))
def test_a_pattern_finds_topics_that_appear_later(connection: Connection, topic: str):
    connection.producer(f"{topic}-one").send(Out(b"1"))
    pattern = f"persistent://public/default/{topic}-.*"
    consumer = connection.pattern(pattern, "s", earliest=True)
    assert [read.value for read in consumer.receive(1)] == [b"1"]

    connection.producer(f"{topic}-two").send(Out(b"2"))
    connection.producer(f"other-{topic}-three").send(Out(b"3"))

    assert [read.value for read in consumer.receive(1)] == [b"2"]
    assert consumer.nothing_comes()


@LIBRARIES
def test_everything_one_library_wrote_is_read_by_all(
    connection: Connection, pulsar: object, topic: str
):
    for codec, batching in itertools.product(("none", "zstd"), (False, True)):
        producer = connection.producer(topic, compression=codec, batching=batching)
        producer.send(*SOME)

    seen = []
    for library in ALL:
        other = connect(library, f"pulsar://{pulsar.address}")  # type: ignore[attr-defined]
        reads = other.reader(topic).receive(4 * len(SOME))
        seen.append([(read.content, read.ordering_key, read.offset) for read in reads])
        other.close()

    assert seen[0] == seen[1] == seen[2]
    assert [content[0] for content, _, _ in seen[0]] == [m.value for m in SOME] * 4
