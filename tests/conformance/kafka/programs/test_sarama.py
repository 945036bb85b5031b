"""sarama configured for one Kafka release after another: it sends that release's API versions.

Its users have to configure the release, many did years ago, and sarama then sends no ApiVersions
request. Its behaviour for the newest release is tested with the other clients, in the families.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.brokers import Broker
from tests.conformance.clients import Record
from tests.conformance.clients.administrators import CONFLUENT
from tests.conformance.clients.kafka_programs import SARAMA
from tests.conformance.kafka.families.families import by_number, produce, refusal
from tests.conformance.members import Member, pump, shares, values_of, write

RELEASES = [
    *("0.8.2.0", "0.9.0.0", "0.10.0.0", "0.10.2.0", "0.11.0.0", "1.0.0", "1.1.0", "2.0.0"),
    *("2.1.0", "2.3.0", "2.4.0", "2.8.0", "3.0.0", "3.6.0", "3.9.0", "4.3.1"),
]
HAVE_GROUPS = RELEASES[RELEASES.index("0.10.2.0") :]
HAVE_IDS = RELEASES[RELEASES.index("0.11.0.0") :]  # of producers, and headers and times
HAVE_ZSTD = RELEASES[RELEASES.index("2.1.0") :]
COUNT = 200


@pytest.mark.parametrize("release", RELEASES)
def test_messages_of_each_release_are_read_by_it_and_the_newest(
    address: str, topic: str, release: str
):
    options: dict[str, object] = {"settings": {"version": release}}
    codecs = ["none", "gzip", "snappy"]
    codecs += ["lz4"] * (release not in RELEASES[:2])
    codecs += ["zstd"] * (release in HAVE_ZSTD)
    values = [b"%s %d" % (codec.encode(), each) for codec in codecs for each in range(COUNT)]
    CONFLUENT.create(address, topic, 1)

    for number, codec in enumerate(codecs):
        mine = [Record(b"key", value) for value in values[number * COUNT : (number + 1) * COUNT]]
        SARAMA.write(address, topic, mine, codec=codec, **options)

    for again in (options, {}):
        reads = SARAMA.read(address, topic, len(values), **again)
        assert [read.value for read in reads] == values
        assert [read.offset for read in reads] == list(range(len(values)))


@pytest.mark.parametrize("release", HAVE_IDS)
def test_numbered_batches_headers_and_times_come_back(address: str, topic: str, release: str):
    options: dict[str, object] = {"settings": {"version": release}}
    sent = Record(b"k", b"v", (("one", b"1"), ("two", b"2"), ("one", b"3")), timestamp_ms=1_000)

    SARAMA.write(address, topic, [sent] * 3, idempotent=True, **options)

    reads = SARAMA.read(address, topic, 3, **options)
    assert [(read.content, read.timestamp_ms) for read in reads] == [
        ((sent.key, sent.value, sent.headers), 1_000)
    ] * 3


def test_a_release_before_0_10_1_finds_offsets_by_time(broker: Broker, topic: str):
    """ListOffsets v0, where a real Kafka knows when a segment was written last: it lists none."""
    address = broker.address
    CONFLUENT.create(address, topic, 1)
    produce(address, topic, {0: [b"a", b"b", b"c"]})

    def at(when: str) -> object:
        words = {"settings": {"version": "0.10.0.0"}, "topic": topic, "at": when}
        return by_number(SARAMA.request("offsets", address, **words))

    assert (at("earliest"), at("latest")) == ({0: 0}, {0: 3})
    if broker.name != "trilogue":
        assert "outofrange" in refusal(lambda: at("2000"))
        return
    assert [at(when) for when in ("500", "2000", "2500", "3500")] == [
        {0: 0},
        {0: 1},
        {0: 2},
        {0: 3},
    ]


@pytest.mark.parametrize("release", HAVE_GROUPS)
def test_a_group_of_any_release_goes_on_where_it_committed(
    address: str, wide_topic: str, join: Callable[..., Member], release: str
):
    def make(address: str, group: str, topic: str) -> Member:
        return SARAMA.join(address, group, [topic], {"version": release})

    first = join(make, wide_topic, wide_topic)
    pump([first], lambda: shares([first]) == [4], "it has all")
    sent = write(address, wide_topic, "first")
    pump([first], lambda: values_of([first]) == sent, "all is read")
    first.commit()
    first.close()

    second = join(make, wide_topic, wide_topic)
    later = write(address, wide_topic, "later")
    pump([second], lambda: later <= values_of([second]), "what came later is read")
    assert values_of([second]) == later
