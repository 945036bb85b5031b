"""What any client wrote, every client reads: one topic written by all, read once by each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.brokers import Broker
from tests.conformance.clients import CLIENTS, Client, Read, Record, each
from tests.conformance.clients.base import Headers, can_write
from tests.conformance.clients.kafka_programs import JAVA_2, PROGRAMS
from tests.conformance.conftest import unique

PLAIN = [
    Record(b"key", b"value"),
    Record(b"tombstone", None),
    Record(b"empty", b""),
    Record(b"headers", b"some", (("one", b"1"), ("two", b"2"), ("one", b"again"))),
    Record(b"unicode", "gr\u00fc\u00dfe".encode(), (("name", "\u00e4".encode()),)),
    Record(b"null header", b"one", (("null", None),)),
]
WRITERS: list[Client] = [*CLIENTS, *PROGRAMS]
READERS = [client for client in WRITERS if client is not JAVA_2]  # it has no zstd
CODEC_OF = dict(
    zip(
        [client.name for client in WRITERS],
        [
            *("lz4", "zstd", "gzip", "snappy", "none", "lz4"),
            *("snappy", "gzip", "zstd", "lz4", "snappy", "zstd"),
        ],
        strict=True,
    )
)

Reads = dict[str, list[Read]]


def written_by(client: Client) -> list[Record]:
    """The records of one writer: the key names it."""
    return [
        Record(f"{client.name}:".encode() + (record.key or b""), record.value, record.headers)
        for record in PLAIN
        if can_write(client, record)
    ]


def kept(
    key: bytes | None, value: bytes | None, headers: Headers, *, ordered: bool
) -> tuple[bytes | None, bytes | None, Headers]:
    """A client that has all values of a header's name at once loses the order between names."""
    return key, value, headers if ordered else tuple(sorted(headers))


@pytest.fixture(scope="module")
def full_topic(broker: Broker) -> str:
    topic = unique("written-by-all")
    for client in WRITERS:
        client.write(broker.address, topic, written_by(client), codec=CODEC_OF[client.name])
    return topic


@pytest.fixture(scope="module")
def read_by(broker: Broker, full_topic: str) -> Iterator[Callable[[Client], list[Read]]]:
    """Every reader reads once, when the first test wants it."""
    reads: Reads = {}
    count = sum(len(written_by(client)) for client in WRITERS)

    def read(client: Client) -> list[Read]:
        if client.name not in reads:
            reads[client.name] = client.read(broker.address, full_topic, count)
        return reads[client.name]

    return read


@pytest.mark.java
@pytest.mark.parametrize("reader", each(READERS))
@pytest.mark.parametrize("writer", each(WRITERS))
def test_each_client_reads_records_of_each_client(
    read_by: Callable[[Client], list[Read]], writer: Client, reader: Client
):
    mine = f"{writer.name}:".encode()

    reads = [read for read in read_by(reader) if (read.key or b"").startswith(mine)]

    assert reads == sorted(reads, key=lambda read: read.offset)
    ordered = not any("order of headers" in client.cannot for client in (writer, reader))
    assert [kept(*read.content, ordered=ordered) for read in reads] == [
        kept(record.key, record.value, record.headers, ordered=ordered)
        for record in written_by(writer)
    ]


@pytest.mark.java
@pytest.mark.parametrize("reader", each(READERS))
def test_every_client_sees_the_same_offsets_and_times(
    read_by: Callable[[Client], list[Read]], reader: Client
):
    other = CLIENTS[0] if reader is not CLIENTS[0] else CLIENTS[1]

    assert [(read.offset, read.timestamp_ms) for read in read_by(other)] == [
        (read.offset, read.timestamp_ms) for read in read_by(reader)
    ]
