"""What a topic's settings make of a batch before it is appended: codec, times, keys, formats."""

from __future__ import annotations

from random import Random
from struct import pack_into

import pytest

from tests.broker import pulsar
from tests.broker.fakes import FakeLog
from tests.conformance.raw_sets import APPEND_TIME, message, wrapper
from tests.entry.samples import CODECS, plain_records, sealed
from trilogue.broker.errors import (
    BrokerError,
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    TooLarge,
    UnsupportedCompression,
)
from trilogue.broker.producers.idempotence import Producers
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.broker.topics.batch_validation import REPORTED_MAX, needs_validation, validate_batch
from trilogue.broker.topics.partition import AppendResult, Partition
from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import Codec, Record
from trilogue.entry.kafka.record_batch import (
    build_batch,
    check_produced,
    iter_records,
    read_header,
    seal,
)

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
ANY = TopicSettings()
LIMITED = TopicSettings(timestamp_before_max_ms=HOUR_MS, timestamp_after_max_ms=2 * HOUR_MS)
STAMPED = TopicSettings(log_append_time=True, timestamp_before_max_ms=0)


def made(records: bytes, settings: TopicSettings = ANY, **how: object) -> bytes:
    """What is to be appended of it, checked."""
    prepared = validate_batch(memoryview(records), settings, now_ms=NOW, **how)
    assert prepared.header == check_produced(prepared.records)
    return bytes(prepared.records)


def timed(*times: int, codec: int = 0) -> bytes:
    return build_batch([Record(at, time, b"k", b"v") for at, time in enumerate(times)], codec=codec)


# ---- compression.type


def test_only_topics_with_constraints_need_validation():
    assert not needs_validation(ANY)
    assert not needs_validation(STAMPED)
    for settings in (LIMITED, TopicSettings(compacts=True), TopicSettings(compression=Codec.NONE)):
        assert needs_validation(settings)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("wanted", list(Codec))
def test_a_batch_is_stored_in_the_codec_of_its_topic(codec: int, wanted: Codec):
    """Kafka's compression.type: the producer's, one codec, or none."""
    sent = build_batch(
        plain_records(30), codec=codec, producer_id=7, producer_epoch=2, base_sequence=40
    )

    batch = made(sent, TopicSettings(compression=wanted))

    assert list(iter_records(batch)) == plain_records(30)
    before, after = read_header(sent), read_header(batch)
    assert after.codec is wanted
    changed = {"length": after.length, "crc": after.crc, "attributes": after.attributes}
    assert after == before._replace(**changed)
    if codec == wanted:
        assert batch == sent


def test_the_level_decides_how_small_it_becomes():
    words = Random(1).choices([f"word{number} " for number in range(90)], k=9_000)
    sent = build_batch([Record(0, NOW, None, "".join(words).encode())])

    for codec, low, high in ((Codec.GZIP, 1, 9), (Codec.LZ4, 3, 12), (Codec.ZSTD, -100, 19)):
        sizes = [
            len(made(sent, TopicSettings(compression=codec, compression_level=level)))
            for level in (low, high)
        ]
        assert sizes[1] < sizes[0], codec


def test_batch_too_large_after_decompression_raises_too_large():
    settings = TopicSettings(compression=Codec.NONE, message_size_max=10_000)
    small = build_batch([Record(0, NOW, None, bytes(50_000))], codec=4)

    with pytest.raises(TooLarge, match="10000"):
        made(small, settings)
    with pytest.raises(TooLarge, match="20000"):
        made(small, TopicSettings(compression=Codec.GZIP), limit=20_000)
    with pytest.raises(TooLarge):
        made(build_batch([Record(0, NOW, None, bytes(50_000))]), settings)


def test_a_repeated_batch_is_known_again_in_another_codec():
    log = FakeLog()
    partition = Partition(
        log.create_partition(7, 1), Producers().partition(7), TopicSettings(compression=Codec.LZ4)
    )
    sent = memoryview(
        build_batch(plain_records(3), producer_id=7, producer_epoch=0, base_sequence=0)
    )

    first = partition.append(sent, now_ms=NOW)

    assert partition.append(sent, now_ms=NOW) == first._replace(duplicate=True)
    assert partition.append(build(3), now_ms=NOW) == AppendResult(3, -1, duplicate=False)
    assert [read_header(each).codec for each in log.partitions[7].entries] == [3, 3]


def build(sequence: int) -> memoryview:
    batch = build_batch(plain_records(1), producer_id=7, producer_epoch=0, base_sequence=sequence)
    return memoryview(batch)


# ---- message.timestamp.before.max.ms and .after.max.ms


@pytest.mark.parametrize("codec", CODECS)
def test_times_out_of_the_limits_are_refused_and_named(codec: int):
    made(timed(NOW - HOUR_MS, NOW, NOW + 2 * HOUR_MS, codec=codec), LIMITED)

    for times in ((NOW, NOW - HOUR_MS - 1), (NOW, NOW + 2 * HOUR_MS + 1, NOW)):
        with pytest.raises(InvalidTimestamp, match="message 1 has time"):
            made(timed(*times, codec=codec), LIMITED)


def test_batch_without_timestamp_passes_timestamp_limits():
    made(timed(-1), LIMITED)


def test_the_brokers_own_times_are_within_all_limits():
    """LogValidator: with LogAppendTime the times of producers are not looked at."""
    made(timed(5), STAMPED)


def test_a_header_that_lies_about_times_does_not_help():
    batch = bytearray(timed(NOW, 5))
    records = bytes(batch[61:])
    lying = seal(
        records, record_count=2, last_offset_delta=1, base_timestamp=NOW, max_timestamp=NOW
    )

    with pytest.raises(InvalidTimestamp, match="message 1"):
        made(lying, LIMITED)


def test_entries_of_other_protocols_are_held_to_the_limits_too():
    """A setting of a topic holds for the producers of every protocol."""
    log = FakeLog()
    partition = Partition(log.create_partition(7, 1), Producers().partition(7), LIMITED)

    for time_ms, is_taken in ((NOW, True), (5, False)):
        sent = pulsar.send(publish_ms=time_ms)
        if is_taken:
            pulsar.append(partition, sent, NOW)
        else:
            with pytest.raises(InvalidTimestamp, match="time 5,"):
                pulsar.append(partition, sent, NOW)
    assert len(log.partitions[7].entries) == 1


# ---- keys


def test_in_a_compacted_topic_each_message_of_an_old_set_needs_a_key():
    compacted = TopicSettings(compacts=True)

    made(message(b"v", b"k"), compacted, is_old=True)
    for sent in (message(b"v"), wrapper(message(b"v", b"k") + message(b"v", offset=1), offset=1)):
        with pytest.raises(InvalidRecord, match="has no key"):
            made(sent, compacted, is_old=True)


def test_the_messages_that_are_not_taken_are_named_and_times_weigh_more():
    """KIP-467; of each message the first thing that is wrong, as a real Kafka reports it."""
    compacted = TopicSettings(compacts=True, timestamp_before_max_ms=HOUR_MS)
    records = [(NOW, b"k"), (5, None), (NOW, None), (5, b"k"), (-1, b"k")]
    sent = build_batch([Record(at, time, key, b"v") for at, (time, key) in enumerate(records)])

    with pytest.raises(InvalidTimestamp) as caught:
        made(sent, compacted)
    assert [at for at, _ in caught.value.messages] == [1, 2, 3]
    with pytest.raises(InvalidRecord) as keyless:
        made(build_batch([Record(at, NOW, None, b"v") for at in range(1_500)]), compacted)
    assert [at for at, _ in keyless.value.messages] == list(range(REPORTED_MAX))
    assert str(keyless.value).count("has no key") == 3


def test_undecodable_batch_is_refused():
    for settings in (LIMITED, TopicSettings(compacts=True)):
        with pytest.raises(InvalidRecord, match="looked at"):
            made(sealed(b"\x99" * 20), settings)


# ---- message sets


def test_a_set_becomes_a_batch_in_its_own_codec_or_in_the_topics():
    plain, packed = message(b"v"), wrapper(message(b"v"))

    assert read_header(made(plain, is_old=True)).codec is Codec.NONE
    assert read_header(made(packed, is_old=True)).codec is Codec.GZIP
    for sent in (plain, packed):
        settings = TopicSettings(compression=Codec.ZSTD)
        assert read_header(made(sent, settings, is_old=True)).codec is Codec.ZSTD


def test_a_set_is_taken_only_where_one_may_be_sent():
    """Produce v3 and later: one batch of magic 2."""
    with pytest.raises(InvalidRecord):
        made(message(b"v"))
    assert made(timed(NOW), is_old=True) == timed(NOW)


def test_times_of_a_set_are_held_to_the_limits():
    made(message(b"v", timestamp=NOW), LIMITED, is_old=True)
    made(message(b"v", magic=0), LIMITED, is_old=True)
    for sent in (message(b"v", timestamp=5), wrapper(message(b"v", timestamp=5))):
        with pytest.raises(InvalidTimestamp):
            made(sent, LIMITED, is_old=True)


def test_producer_cannot_claim_log_append_time():
    """A real Kafka refuses it where it matters: for times of the broker, and without a time."""
    claiming = message(b"v", attributes=APPEND_TIME, timestamp=NOW)
    untimed = message(b"v", attributes=APPEND_TIME, timestamp=-1)

    assert read_header(made(claiming, is_old=True)).attributes == 0
    for sent, settings in ((claiming, STAMPED), (untimed, ANY)):
        with pytest.raises(InvalidTimestamp):
            made(sent, settings, is_old=True)


REFUSED: dict[str, tuple[bytes, type[BrokerError]]] = {
    "a wrong checksum": (message(b"v", crc=1), CorruptRecord),
    "cut": (message(b"v")[:-1], InvalidRecord),
    "cut in the header": (message(b"v")[:17], InvalidRecord),
    "nonsense": (wrapper(b"nonsense"), InvalidRecord),
    "a codec that does not exist": (timed(NOW)[:22] + b"\x07" + timed(NOW)[23:], CorruptRecord),
    "too large": (message(bytes(2 << 20)), TooLarge),
    "too large together": (message(bytes(600_000)) * 2, TooLarge),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_batch_raises_its_error(case: str):
    sent, error = REFUSED[case]

    with pytest.raises(error):
        made(sent, is_old=True)


def test_unknown_codec_raises_unsupported_compression():
    batch = bytearray(timed(NOW))
    batch[22] = 5
    pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))

    with pytest.raises(UnsupportedCompression):
        made(bytes(batch), TopicSettings(compression=Codec.LZ4))
