"""Conversion to another protocol and back loses nothing, and reports damaged entries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.entry.converted import (
    LIMIT,
    NOW_MS,
    back_to_kafka,
    kafka_batches,
    metadata,
    one_section,
    pulsar_messages,
    read_section,
    stored,
    to_pulsar,
)
from trilogue.entry.conversion import convert
from trilogue.entry.conversion.convert import SkippedRange
from trilogue.entry.conversion.reserved_names import (
    DELIVER_AT,
    KEY_FORM,
    KEY_IS_BASE64,
    KEY_IS_BROKEN,
    NULL_KEY,
)
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import (
    build_batch,
    check_crc,
    read_header,
)
from trilogue.entry.pulsar.compression import PulsarCodec
from trilogue.entry.pulsar.pulsar_batch import (
    build_batch as build_pulsar_batch,
)
from trilogue.entry.pulsar.pulsar_batch import (
    build_single,
    read_metadata,
)


@given(kafka_batches(), st.sampled_from([LIMIT, 700]))
def test_kafka_to_pulsar_and_back_loses_nothing(made, limit):
    batch, records = made

    sections = to_pulsar(batch, limit)

    assert back_to_kafka([each for each in sections if each != SkippedRange(*each[:2])]) == records


@given(
    st.lists(st.none() | pulsar_messages(), min_size=1, max_size=5),
    st.sampled_from(list(PulsarCodec)),
    st.fixed_dictionaries(
        {},
        optional={
            "schema_version": st.binary(max_size=8),
            "schema_id": st.binary(max_size=4),
            "replicated_from": st.text(st.characters(codec="utf-8"), max_size=5),
            "deliver_at_time": st.integers(0, 2**62),
        },
    ),
    st.booleans(),
)
def test_pulsar_to_kafka_and_back_loses_nothing(messages, codec, fields, is_batch):
    real = [each for each in messages if each is not None]
    if not real:
        return
    if is_batch:
        section = build_pulsar_batch(messages, metadata(**fields), codec=codec)
    else:
        messages = real = real[:1]
        section = build_single(real[0], metadata(**fields), codec=codec)
    entry, header = stored(section, base_offset=77)

    converted = convert.kafka_batch(entry, header)
    assert converted.skipped is None
    found = one_section(bytes(converted.data))
    described, again = read_section(found)

    expected = [
        each._replace(batch_index=at, event_time=each.event_time or NOW_MS, sequence_id=77 + at)
        for at, each in enumerate(messages)
        if each is not None
    ]
    assert [each[:8] for each in again] == [each[:8] for each in expected]
    assert [each.properties for each in again] == [each.properties for each in expected]
    before = read_metadata(entry)
    assert described.schema_version == (before.schema_version or b"")
    assert described.HasField("schema_version") == (before.schema_version is not None)
    assert described.schema_id == (before.schema_id or b"")
    assert described.replicated_from == (before.replicated_from or "")
    assert described.deliver_at_time == max(0, before.deliver_at_time)


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        (b"YQ==", ((KEY_FORM, KEY_IS_BROKEN),)),  # it is base64
        (b"\xff", ((KEY_FORM, KEY_IS_BASE64),)),  # it is marked anyhow
        (b"k", ((KEY_FORM, KEY_IS_BASE64), (KEY_FORM, KEY_IS_BASE64))),
        (None, ((NULL_KEY, b""), (NULL_KEY, b""))),
        (b"k", ((DELIVER_AT, b"-1"),)),
    ],
)
def test_a_reserved_header_that_makes_no_sense_stays_a_header(key, headers):
    """A Kafka application may write any reserved header, and gets its own key back."""
    record = Record(0, NOW_MS, key, b"v", headers)

    (again,) = back_to_kafka(to_pulsar(build_batch([record])))

    assert again.key == key
    assert sorted(again.headers) == sorted(headers)


@given(kafka_batches(), st.data())
def test_damaged_batches_convert_to_sections_of_the_same_span(made, data):
    batch, _ = made
    damaged = bytearray(batch)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(61, len(batch) - 1)) if len(batch) > 61 else 60
        damaged[at] = data.draw(st.integers(0, 255))

    sections = convert.pulsar_sections(bytes(damaged), read_header(batch), limit=LIMIT)

    header = read_header(batch)
    assert sections[0].offset == header.base_offset
    assert sum(each.span for each in sections) == header.span


@given(st.lists(pulsar_messages(), min_size=1, max_size=3), st.data())
def test_a_damaged_section_is_a_batch_that_consumers_pass(messages, data):
    entry, header = stored(build_pulsar_batch(messages, metadata()), base_offset=9)
    damaged = bytearray(entry)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(61, len(entry) - 1))] = data.draw(st.integers(0, 255))

    found = convert.kafka_batch(bytes(damaged), header)

    converted = check_crc(found.data)
    assert (converted.base_offset, converted.span) == (9, header.span)
