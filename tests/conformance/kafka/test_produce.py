"""Foreign producers, unmodified: what they write is stored as they sent it."""

from __future__ import annotations

import pytest

from tests.brokers import Broker
from tests.conformance.clients import CODECS, EVERYONE, Client, Record, each
from tests.conformance.clients.base import can_write
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.kcat import Kcat
from tests.conformance.raw import batch_of, fetch, produce, stored_batches

READER = Confluent()
ERRORS = {"CORRUPT_MESSAGE": 2}
COMPRESSIBLE = [
    Record(b"key-%d" % number, b"the same words again and again " * 20 + b"%d" % number)
    for number in range(50)
]
ANY_BYTES = [client for client in EVERYONE if "binary" not in client.cannot]
CODECS_OF = [
    (client, codec)
    for client in EVERYONE
    for codec in CODECS
    if (client.name, codec) != ("java-2.0.0", "zstd")  # which came with 2.1
]


def contents(records: list[Record]) -> list[object]:
    return [(record.key, record.value, record.headers) for record in records]


def as_kept(client: Client, content: list[object]) -> list[object]:
    """A client that has all values of a header's name at once loses the order between names."""
    if "order of headers" not in client.cannot:
        return content
    return [(key, value, sorted(headers)) for key, value, headers in content]


@pytest.mark.parametrize(
    ("client", "codec"),
    [
        pytest.param(
            client,
            codec,
            id=f"{client.name}-{codec}",
            marks=[pytest.mark.java] if "java" in client.name else [],
        )
        for client, codec in CODECS_OF
    ],
)
def test_batches_are_stored_in_the_codec_they_came_in(
    address: str, topic: str, client: Client, codec: str
):
    client.write(address, topic, COMPRESSIBLE, codec=codec)

    assert {codec} == {batch.codec for batch in stored_batches(address, topic)}
    assert contents(COMPRESSIBLE) == [
        read.content for read in READER.read(address, topic, len(COMPRESSIBLE))
    ]


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("client", each(EVERYONE))
def test_producers_number_their_batches_when_idempotent(
    address: str, topic: str, client: Client, idempotent: bool
):
    client.write(address, topic, COMPRESSIBLE, idempotent=idempotent)

    batches = stored_batches(address, topic)
    assert {idempotent} == {batch.idempotent for batch in batches}
    assert len(COMPRESSIBLE) == sum(batch.record_count for batch in batches)
    if idempotent:
        counts = [batch.record_count for batch in batches]
        assert [sum(counts[:at]) for at in range(len(counts))] == [
            batch.base_sequence for batch in batches
        ]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("client", each(EVERYONE))
def test_every_kind_of_ack_stores_the_records(address: str, topic: str, client: Client, acks: str):
    client.write(address, topic, COMPRESSIBLE, acks=acks)

    reads = READER.read(address, topic, len(COMPRESSIBLE))
    assert contents(COMPRESSIBLE) == [read.content for read in reads]


SHAPES = [
    Record(b"key", b"value"),
    Record(None, b"no key"),
    Record(b"tombstone", None),
    Record(b"empty", b""),
    Record(b"", b"empty key"),
    Record(None, None),
    Record(bytes(range(256)), b"\xff\x00\xfe" * 100),
    Record(b"k", b"headers", (("one", b"1"), ("two", b"2"), ("one", b"again"))),
    Record(b"k", b"odd headers", (("null", None), ("empty", b""), ("bytes", b"\x00\xff"))),
    Record(b"k", b"unicode \xc3\xa4", (("\u00e4", "\u00f6".encode()),)),
]


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("client", each(ANY_BYTES))
def test_keys_values_and_headers_come_back_as_they_were(
    address: str, topic: str, client: Client, codec: str
):
    shapes = [shape for shape in SHAPES if can_write(client, shape)]

    client.write(address, topic, shapes, codec=codec)

    read = [read.content for read in READER.read(address, topic, len(shapes))]
    assert as_kept(client, contents(shapes)) == as_kept(client, read)


@pytest.mark.parametrize("client", each(ANY_BYTES))
def test_event_times_come_back_as_they_were(address: str, topic: str, client: Client):
    times = [1_357_000_000_000, 1_357_000_000_500, 1_356_999_999_999, 1_700_000_000_123]
    client.write(address, topic, [Record(b"k", b"v", (), time) for time in times])

    assert times == [read.timestamp_ms for read in READER.read(address, topic, len(times))]


@pytest.mark.parametrize("client", each(ANY_BYTES))
def test_large_records_come_back_whole(address: str, topic: str, client: Client):
    large = [Record(b"%d" % number, bytes([65 + number]) * 900_000) for number in range(5)]

    client.write(address, topic, large)

    assert contents(large) == [read.content for read in READER.read(address, topic, len(large))]


def test_a_batch_made_by_hand_is_stored_to_the_byte(address: str, topic: str):
    """Only the base offset and the leader epoch are the broker's (bytes 0-8 and 12-16)."""
    READER.write(address, topic, [Record(b"k", b"first")])
    sent = batch_of(b"made by hand")

    assert produce(address, topic, 0, sent) == 0

    stored = fetch(address, topic, 0, 1).records
    assert (stored[8:12], stored[16:]) == (sent[8:12], sent[16:])
    assert int.from_bytes(stored[:8], "big") == 1


@pytest.mark.parametrize(
    ("at", "error"),
    [
        pytest.param(70, "CORRUPT_MESSAGE", id="a value's bit"),
        pytest.param(17, "CORRUPT_MESSAGE", id="the checksum"),
    ],
)
def test_a_damaged_batch_is_refused(address: str, topic: str, at: int, error: str):
    READER.write(address, topic, [Record(b"k", b"first")])
    damaged = bytearray(batch_of(b"made by hand"))
    damaged[at] ^= 1

    answer = produce(address, topic, 0, bytes(damaged))

    assert ERRORS[error] == answer
    assert len(stored_batches(address, topic)) == 1


def test_a_record_over_the_limit_is_refused_with_the_right_error(address: str, topic: str):
    errors = []
    producer = READER.producer(address, {"message.max.bytes": 5_000_000})

    producer.produce(
        topic, b"x" * 2_000_000, on_delivery=lambda error, _: errors.append(error.name())
    )
    producer.flush(30)

    assert errors == ["MSG_SIZE_TOO_LARGE"]


@pytest.mark.parametrize("client", each(EVERYONE))
def test_first_record_creates_the_topic(broker: Broker, topic: str, client: Client):
    client.write(broker.address, topic, [Record(b"k", b"first")])

    listed = Kcat().run("-L", "-b", broker.address, "-t", topic)
    assert f'topic "{topic}" with 1 partitions' in listed
