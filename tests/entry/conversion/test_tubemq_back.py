"""Conversion through TubeMQ and back loses nothing, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.entry.converted import (
    NOW_MS,
    back_to_kafka,
    kafka_batches,
    metadata,
    names,
    one_section,
    pulsar_messages,
    read_section,
    records_of_entry,
    sent_again,
    stored,
    to_pulsar,
    tube_entry,
    tubed,
)
from trilogue.entry.conversion import convert
from trilogue.entry.conversion.convert import TubeMessage
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.entry.pulsar.pulsar_batch import build_batch as build_pulsar_batch
from trilogue.entry.pulsar.pulsar_batch import read_metadata
from trilogue.entry.tubemq.tubemq_blob import split_data

ODD_NAMES = names | st.sampled_from([
    "", " ", ",", "=", "a=b", "a,b", "%2C", "$", "$msgType$", "x$msgTime$", "trilogue.key",
    "trilogue.key.base64", "trilogue.value", "trilogue.type.base64", "trilogue.tubemq.attribute",
    "trilogue.header.0.base64.a", "trilogue.header.1.text.%2C", "trilogue.pulsar.key-form",
])  # fmt: skip
ODD_VALUES = st.sampled_from(
    [
        b"",
        b",",
        b"=",
        b"a=b",
        b"a=b=c",
        b"null",
        b"-1",
        b" ",
        b"$msgType$=x",
        b"YQ",
        b"YQ==",
        b"\xff",
    ]
) | st.binary(max_size=8)


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    times = st.integers(-3, 3) | st.integers(-(2**61), 2**61) | st.just(NOW_MS)
    found, offset = [], draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 4))):
        headers = draw(st.lists(st.tuples(ODD_NAMES, st.none() | ODD_VALUES), max_size=5))
        key = draw(st.none() | ODD_VALUES)
        value = draw(st.none() | ODD_VALUES)
        found.append(Record(offset, draw(times), key, value, tuple(headers)))
        offset += draw(st.integers(1, 3))
    return found


@given(records())
def test_kafka_to_tubemq_and_back_loses_nothing(made):
    found = sent_again(tubed(build_batch(made)))

    assert [each for entry in found for each in records_of_entry(*entry)] == made


@given(kafka_batches())
def test_kafka_to_tubemq_to_pulsar_and_back_loses_nothing(made):
    batch, expected = made

    sections = [to_pulsar(entry)[0] for entry, _ in sent_again(tubed(batch))]

    assert back_to_kafka(sections) == expected


@given(
    st.lists(st.none() | pulsar_messages(), min_size=1, max_size=4),
    st.fixed_dictionaries(
        {},
        optional={
            "schema_version": st.binary(max_size=8),
            "schema_id": st.binary(max_size=4),
            "replicated_from": st.text(st.characters(codec="utf-8"), max_size=5),
            "deliver_at_time": st.integers(0, 2**62),
        },
    ),
)
def test_pulsar_to_tubemq_and_back_loses_nothing(messages, fields):
    real = [(at, each) for at, each in enumerate(messages) if each is not None]
    if not real:
        return
    entry, _ = stored(build_pulsar_batch(messages, metadata(**fields)), base_offset=77)
    before = read_metadata(entry)

    found = [one_section(again) for again, _ in sent_again(tubed(entry))]

    assert [each.offset for each in found] == [77 + at for at, _ in real]
    for section, (at, each) in zip(found, real, strict=True):
        described, (only,) = read_section(section)
        assert only == each._replace(batch_index=0, sequence_id=77 + at)
        assert described.schema_version == (before.schema_version or b"")
        assert described.HasField("schema_version") == (before.schema_version is not None)
        assert described.schema_id == (before.schema_id or b"")
        assert described.replicated_from == (before.replicated_from or "")
        assert described.deliver_at_time == max(0, before.deliver_at_time)


words = st.text(
    st.characters(codec="utf-8", exclude_characters=",="), min_size=1, max_size=8
).filter(lambda text: text.strip() and "$msg" not in text and not text.startswith("trilogue."))
moments = st.sampled_from(["", "000101010000", "199912312359", "202402291200", "999912312359"])


@st.composite
def sent(draw: st.DrawFn) -> tuple[bytes, str, str | None, str | None]:
    """A message as a client's `setAttrKeyVal` and `putSystemHeader` make it."""
    kind = draw(st.just("") | words.map(str.strip))
    time = draw(moments)
    pairs = draw(st.dictionaries(words, words, max_size=3))
    system = [("$msgType$", kind)] * bool(kind) + [("$msgTime$", time)] * bool(time)
    text = ",".join(f"{name}={value}" for name, value in [*system, *pairs.items()])
    return draw(st.binary(min_size=1, max_size=20)), text, kind or None, time or None


def outcome_of(found: TubeMessage) -> tuple[bytes, str]:
    text, body = split_data(found.data, found.flag)
    return bytes(body), text


@given(sent())
def test_tubemq_to_pulsar_and_back_loses_nothing(made):
    body, text, kind, time = made
    entry, _ = tube_entry(body, text, message_type=kind, message_time=time, base_offset=5)

    section = one_section(entry)
    (again,) = tubed(stored(section.data, section.offset)[0])

    assert outcome_of(again) == (body, text)
    assert (again.offset, again.message_type) == (5, kind)
    assert again.message_time == int(time or -1)


@given(sent())
def test_tubemq_to_kafka_and_back_loses_nothing(made):
    """A message without a time gets that of its append, since Kafka's messages have one."""
    body, text, kind, time = made
    entry, header = tube_entry(body, text, message_type=kind, message_time=time, base_offset=5)

    batch = bytes(convert.kafka_batch(entry, header).data)
    (again,) = tubed(batch)
    back, found = outcome_of(again)

    pieces = [each for each in found.split(",") if each]
    if time is None:
        pieces = [each for each in pieces if "$msgTime$" not in each]
        pieces = [each for each in pieces if not each.startswith("trilogue.timestamp=")]
    assert (back, ",".join(pieces)) == (body, text)
    assert (again.offset, again.message_type) == (5, kind)
    assert time is None or again.message_time == int(time)


@given(st.text(st.sampled_from("a=,$.% "), max_size=12), st.binary(max_size=4))
def test_any_attributes_come_back_as_the_same_messages(text, body):
    """Attributes that no client writes are kept in another form that reads the same."""
    entry, header = tube_entry(body, text, base_offset=3)

    batch = bytes(convert.kafka_batch(entry, header).data)
    ((again, header),) = sent_again(tubed(batch))

    assert bytes(convert.kafka_batch(again, header).data) == batch


@given(records(), st.data())
def test_a_damaged_entry_is_reported_and_never_more(made, data):
    entries = sent_again(tubed(build_batch(made)))
    for entry, header in entries:
        damaged = bytearray(entry)
        for _ in range(data.draw(st.integers(1, 4))):
            damaged[data.draw(st.integers(61, len(entry) - 1))] = data.draw(st.integers(0, 255))

        batch = convert.kafka_batch(bytes(damaged), header)
        sections = convert.pulsar_sections(bytes(damaged), header)

        assert batch.data
        assert [(each.offset, each.span) for each in sections] == [(header.base_offset, 1)]


@given(st.lists(pulsar_messages(), min_size=1, max_size=3), st.data())
def test_a_damaged_section_is_skipped_for_tubemq(messages, data):
    entry, header = stored(build_pulsar_batch(messages, metadata()), base_offset=9)
    damaged = bytearray(entry)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(61, len(entry) - 1))] = data.draw(st.integers(0, 255))

    found = convert.tubemq_messages(bytes(damaged), header)

    covered = sum(each.span if not isinstance(each, TubeMessage) else 1 for each in found)
    assert (found[0].offset, covered) == (9, header.span)


@pytest.mark.parametrize(
    "header",
    [
        ("trilogue.tubemq.attribute", b"$msgType$=x"),
        ("trilogue.tubemq.attribute", b"$msgTime$=202011110000"),
        ("trilogue.tubemq.attribute", b"no pair"),
        ("trilogue.tubemq.attribute", b" "),
        ("trilogue.key", b"k"),
        ("trilogue.ordering-key.base64", b"YQ"),
        ("trilogue.type.base64", b"YQ"),
        ("trilogue.value", b"null"),
        ("trilogue.timestamp", b"5"),
        ("trilogue.header.0.null.%2C", b""),
    ],
)
def test_a_header_with_a_reserved_name_stays_a_header(header):
    record = Record(0, NOW_MS, None, b"", (header,))

    ((entry, found),) = sent_again(tubed(build_batch([record])))

    assert records_of_entry(entry, found) == [record]


def test_a_tombstone_with_a_key_comes_back():
    (section,) = to_pulsar(build_batch([Record(0, NOW_MS, b"k", None)]))
    ((entry, header),) = sent_again(tubed(stored(section.data)[0]))

    assert records_of_entry(entry, header) == [Record(0, NOW_MS, b"k", None)]
