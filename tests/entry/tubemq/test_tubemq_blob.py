"""Entries of TubeMQ producers: stored bytes, refused messages, selection for consumers."""

from __future__ import annotations

from pathlib import Path
from struct import pack, pack_into
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure import load_pure
from tests.wire.tubemq.captures import NAMES, recorded
from tests.wire.tubemq.test_vectors import body_of
from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import CorruptEntry, EntryError, EntryHeader, Format, InvalidEntry
from trilogue.entry.header import CHECKED_FROM
from trilogue.entry.kafka.record_batch import check_crc, set_base
from trilogue.entry.tubemq import tubemq_entry
from trilogue.entry.tubemq.tubemq_blob import (
    NO_TIME,
    TYPE_SIZE_MAX,
    WrongChecksum,
    attributes_text,
    checksum_of,
    java_hash,
    join_data,
    message_id,
    parse_attributes,
    read_stored,
    split_data,
    verify_entry,
)
from trilogue.entry.walk import formats_in, read_header
from trilogue.wire.tubemq.broker_pb2 import GetMessageResponseB2C
from trilogue.wire.tubemq.rpc_codec import parse_request, parse_response, parse_send

PURE = load_pure("trilogue.entry.tubemq.tubemq_entry")
TWINS = (tubemq_entry, PURE)
NOW, ADDRESS = 1_795_262_647_823, -1_073_741_310


def entry_of(data: bytes, **more: object) -> tuple[bytes, EntryHeader]:
    """Build an entry by both versions of the module, which give the same result."""
    built = [outcome(twin, data, **more) for twin in TWINS]
    assert repr(built[0]) == repr(built[1])
    if isinstance(built[0], Exception):
        raise built[0]
    return built[0]


def outcome(twin, data: bytes, **more: object):
    fields = {"flag": 0, "checksum": -1, "sent_addr": ADDRESS, "message_type": None,
              "message_time": None, "broker_ms": NOW} | more  # fmt: skip
    try:
        entry, header = twin.build_entry(memoryview(data), **fields)
    except EntryError as error:
        return error
    return bytes(entry), header


def placed(offset: int, data: bytes = b"body", **more: object) -> bytes:
    entry, _ = entry_of(data, **more)
    octets = bytearray(entry)
    set_base(octets, offset, 3)
    return bytes(octets)


data_and_flags = st.one_of(
    st.tuples(st.binary(max_size=300), st.just(0)),
    st.tuples(st.binary(max_size=60), st.binary(max_size=60)).map(
        lambda pair: (pack(">i", len(pair[0])) + pair[0] + pair[1], 1)
    ),
)
types = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
moments = st.none() | st.integers(0, 10**12 - 1).map("{:012}".format)


@given(data_and_flags, types, moments, st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**62))
def test_entry_round_trips(data_and_flag, kind, moment, address, now):
    data, flag = data_and_flag
    entry, header = entry_of(
        data, flag=flag, message_type=kind, message_time=moment, sent_addr=address, broker_ms=now
    )

    stored = verify_entry(entry, header)

    assert (stored.flag, stored.data, stored.sent_addr, stored.broker_ms) == (
        flag, data, address, now,
    )  # fmt: skip
    assert stored.message_time == (NO_TIME if moment is None else int(moment))
    assert stored.checksum == crc32(data) & 0x7FFFFFFF
    plain = (kind or "").strip("".join(map(chr, range(33)))) if (kind or "").strip() else None
    assert stored.message_type == (plain or None)
    assert stored.type_hash == (java_hash(plain) if plain else 0)


def test_an_entry_is_one_message_of_format_2_under_a_checksum():
    entry, header = entry_of(b"body")

    assert read_header(entry) == header
    assert header.format is Format.TUBEMQ
    assert (header.span, header.record_count, header.length) == (1, 1, len(entry))
    assert header.base_timestamp == header.max_timestamp == NOW
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.crc == crc32c(entry[CHECKED_FROM:])
    check_crc(entry)
    assert formats_in(entry) == 1 << Format.TUBEMQ


def test_the_broker_may_place_an_entry_without_touching_its_checksum():
    octets = placed(41)

    check_crc(octets)
    assert (read_header(octets).base_offset, read_header(octets).leader_epoch) == (41, 3)


# ---- what is refused


def test_a_checksum_that_is_not_that_of_the_data_is_refused():
    right = crc32(b"body") & 0x7FFFFFFF

    entry_of(b"body", checksum=right)
    for wrong in (right ^ 1, 12345, -2, right | 1 << 31):
        with pytest.raises(WrongChecksum) as caught:
            entry_of(b"body", checksum=wrong)
        assert (caught.value.given, caught.value.actual) == (wrong, right)


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\0", pack(">i", 1), pack(">i", -1) + b"x", pack(">i", 2**31 - 1) + b"abc"]
)
def test_attributes_that_are_longer_than_the_data_are_refused(data: bytes):
    entry_of(data)
    with pytest.raises(InvalidEntry, match="attributes"):
        entry_of(data, flag=1)
    with pytest.raises(InvalidEntry, match="attributes"):
        split_data(data, 1)


@pytest.mark.parametrize("flag", [2, 3, 4, -1, 256, 2**31 - 1])
def test_a_flag_that_is_unknown_is_refused(flag: int):
    with pytest.raises(InvalidEntry, match=f"flag {flag}"):
        entry_of(pack(">i", 0), flag=flag)


@pytest.mark.parametrize(
    "moment", ["2026", "1795309392909", "2026112112000", "2026-11-2112", "\u0661" * 12]
)
def test_a_time_that_is_not_twelve_digits_stands_in_the_attributes_alone(moment: str):
    """Real brokers do not check it; InLong's C++ example sends milliseconds."""
    data, flag = join_data(f"$msgTime$={moment}", b"x")

    entry, header = entry_of(data, flag=flag, message_time=moment)

    stored = verify_entry(entry, header)
    assert (stored.message_time, bytes(stored.data)) == (NO_TIME, bytes(data))


def test_a_type_is_as_long_as_it_may_be():
    entry_of(b"x", message_type="t" * TYPE_SIZE_MAX)
    with pytest.raises(InvalidEntry, match="a type of"):
        entry_of(b"x", message_type="é" * (TYPE_SIZE_MAX // 2 + 1))


@pytest.mark.parametrize("blank", ["", " ", "\t \u3000"])
def test_a_blank_type_or_time_is_none(blank: str):
    entry, header = entry_of(b"x", message_type=blank, message_time=blank)

    stored = verify_entry(entry, header)
    assert (stored.message_type, stored.type_hash, stored.message_time) == (None, 0, NO_TIME)


# ---- damaged entries


@given(st.data())
def test_a_damaged_entry_is_an_entry_error_or_reads(data: st.DataObject):
    octets = bytearray(placed(3, message_type="typeA", message_time="202611211200"))
    for _ in range(data.draw(st.integers(1, 3))):
        octets[data.draw(st.integers(61, len(octets) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(octets[: data.draw(st.integers(61, len(octets)))])

    try:
        read_stored(cut)
        verify_entry(cut, read_header(bytes(octets)))
    except EntryError:
        return


@pytest.mark.parametrize(
    ("at", "value"),
    [(61, b"\x02"), (62, b"\x06"), (63, b"\xff\xff"), (65, b"\0\0\0\1"), (69, b"\0\0\0\1"),
     (93, b"\xff"), (98, b"X")],
)  # fmt: skip
def test_fields_outside_the_checksum_are_verified(at: int, value: bytes):
    octets = bytearray(placed(3, message_type="typeA"))
    octets[at : at + len(value)] = value

    with pytest.raises(CorruptEntry):
        verify_entry(bytes(octets), read_header(bytes(octets)))


def test_attributes_that_do_not_fit_are_seen_when_an_entry_is_verified():
    octets = bytearray(placed(3, b"no size"))
    octets[62] = 1

    with pytest.raises(CorruptEntry, match="attributes"):
        verify_entry(bytes(octets), read_header(bytes(octets)))


def test_only_tubemq_entries_of_one_message_are_verified():
    octets = bytearray(placed(3))
    pack_into(">i", octets, 57, 2)
    with pytest.raises(CorruptEntry, match="2 messages"):
        verify_entry(octets, read_header(octets))
    octets[21] = 1
    with pytest.raises(InvalidEntry, match="PULSAR"):
        verify_entry(octets, read_header(octets))


# ---- hashes, ids, attributes


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("a", 97), ("typeA", 110843975), ("polygenelubricants", -(2**31)), ("Aa", 2112),
     ("BB", 2112), ("é", 233), ("中文", 646394), ("\U0001f600", 1772899)],
)  # fmt: skip
def test_a_hash_is_that_of_java(text: str, code: int):
    """Over UTF-16 units: a character beyond the first plane is two."""
    for twin in TWINS:
        assert twin.java_hash(text) == code


@given(st.text(max_size=30))
def test_a_hash_is_that_of_its_definition(text: str):
    code = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        code = (31 * code + unit) % 2**32

    for twin in TWINS:
        assert twin.java_hash(text) % 2**32 == code
        assert -(2**31) <= twin.java_hash(text) < 2**31


places = st.tuples(
    st.integers(0, 2**18 + 2) | st.integers(0, 2**63 - 1), st.integers(0, 2**45) | st.integers(0, 9)
)


@given(places, places)
def test_an_id_is_positive_and_belongs_to_one_place(one, other):
    for twin in TWINS:
        assert 0 < twin.message_id(*one) < 2**63
        assert (twin.message_id(*one) == twin.message_id(*other)) == (one == other)
        assert twin.message_id(*one) == message_id(*one)


def test_message_ids_at_the_bounds_of_exact_encoding_are_distinct():
    borders = [(p, o) for p in (0, 1, 2**18 - 2, 2**18 - 1, 2**18, 2**62)
               for o in (0, 1, 2**44 - 1, 2**44, 2**62)]  # fmt: skip

    assert len({message_id(*place) for place in borders}) == len(borders)


names = st.text(st.characters(exclude_characters=",=", exclude_categories=["Cs"]), min_size=1)
values = st.text(st.characters(exclude_characters=",=", exclude_categories=["Cs"]))


@given(st.lists(st.tuples(names, values), max_size=5), st.binary(max_size=20))
def test_attributes_stand_before_the_body(attributes, body: bytes):
    text = attributes_text(attributes)
    data, flag = join_data(text, body)

    found, rest = split_data(data, flag)

    assert flag == (1 if text.strip() else 0)
    assert rest == body
    if flag:
        assert found == text
        assert parse_attributes(found) == attributes


@pytest.mark.parametrize("pair", [("", "x"), ("a=", "x"), ("a,", "x"), ("a", "x,"), ("a", "=")])
def test_attributes_that_would_be_taken_apart_are_not_written(pair):
    with pytest.raises(InvalidEntry):
        attributes_text([pair])


def test_attributes_are_read_as_clients_do():
    assert parse_attributes("a=1,,b,c=x=y,a=2") == [("a", "1"), ("b", ""), ("c", "x=y"), ("a", "2")]
    assert split_data(pack(">i", 2) + b"\xff=rest", 1) == ("\ufffd=", b"rest")


# ---- selection of messages


def pick(entries: bytes, offset: int = 0, hashes=None, size: int = 1 << 20, count: int = 1000):
    """Pick by both versions of the module, which give the same result."""
    first, second = (twin.pick(entries, 7, offset, hashes, size, count) for twin in TWINS)
    assert tuple(first[1:]) == tuple(second[1:])
    assert [tuple(each) for each in first.messages] == [tuple(each) for each in second.messages]
    return first


def many(count: int, base: int = 0) -> bytes:
    return b"".join(
        placed(base + at, b"body %d" % at, message_type=("typeA", "typeB", None)[at % 3])
        for at in range(count)
    )


def test_messages_are_handed_out_as_they_were_sent():
    data = pack(">i", 3) + b"a=b" + b"body"
    picked = pick(placed(5, data, flag=1) + placed(6), 5)

    assert [each.data for each in picked.messages] == [data, b"body"]
    assert [each.flag for each in picked.messages] == [1, 0]
    assert [each.checksum for each in picked.messages] == [checksum_of(data), checksum_of(b"body")]
    assert [each.message_id for each in picked.messages] == [message_id(7, 5), message_id(7, 6)]
    assert picked[1:] == (7, len(data) + 4, 2)


def test_messages_before_the_offset_are_skipped():
    assert [bytes(each.data) for each in pick(many(5, 10), 13).messages] == [b"body 3", b"body 4"]
    assert pick(many(5, 10), 99)[1:] == (99, 0, 0)


def test_only_types_that_are_requested_are_handed_out():
    """A message without a type matches no filter."""
    for wanted, expected in (("typeA", [0, 3]), ("typeB", [1, 4]), ("other", [])):
        picked = pick(many(6), 0, frozenset([java_hash(wanted), 0, -1]))
        assert [bytes(each.data) for each in picked.messages] == [
            b"body %d" % at for at in expected
        ]
        assert (picked.next_offset, picked.entries) == (6, 6)


def test_an_answer_ends_before_it_gets_too_large_but_has_a_message():
    assert [each.data for each in pick(many(5), 0, size=12).messages] == [b"body 0", b"body 1"]
    assert pick(many(5), 0, size=12).next_offset == 2
    assert len(pick(many(5), 0, size=0).messages) == 1
    assert pick(many(5), 0, count=3)[1:] == (3, 18, 3)


def test_an_entry_that_was_emptied_hands_nothing_out():
    octets = bytearray(placed(0)[:61])
    pack_into(">i", octets, 8, 61 - 12)
    pack_into(">i", octets, 57, 0)

    assert pick(bytes(octets) + placed(1)) == pick(placed(1), 1)._replace(entries=2)


@pytest.mark.parametrize(
    ("at", "value"),
    [(8, b"\x7f\xff\xff\xff"), (8, b"\0\0\0\0"), (8, b"\xff\xff\xff\xff"), (16, b"\1"), (21, b"\1"),
     (61, b"\2"), (63, b"\xff\xff"), (8, pack(">i", 70))],
)  # fmt: skip
def test_inconsistent_entry_raises_entry_error(at: int, value: bytes):
    octets = bytearray(placed(0))
    octets[at : at + len(value)] = value
    for twin in TWINS:
        with pytest.raises(EntryError):
            twin.pick(bytes(octets), 7, 0, None, 1 << 20, 10)


@given(st.binary(max_size=150) | st.integers(0, 150).map(lambda size: many(2)[:size]))
def test_any_bytes_are_entries_or_an_entry_error(octets: bytes):
    for twin in TWINS:
        try:
            twin.pick(octets, 7, 0, None, 1 << 20, 10)
        except EntryError:
            continue


def test_recorded_sends_are_kept_and_handed_out_as_the_real_broker_does():
    """Data and checksum of each recorded message equal those of the stored message."""
    sent = {}
    got = {}
    for frame in (frame for name in NAMES for frame in recorded(name)):
        if frame.is_request and parse_request(body_of(frame)).method == 13:
            send = parse_send(parse_request(body_of(frame)).body)
            entry, header = entry_of(
                bytes(send.data), flag=send.flag, checksum=send.checksum, sent_addr=send.sent_addr,
                message_type=send.message_type, message_time=send.message_time,
            )  # fmt: skip
            sent[bytes(send.data)] = verify_entry(entry, header)
        elif not frame.is_request and parse_response(body_of(frame)).method == 17:
            response = GetMessageResponseB2C.FromString(bytes(parse_response(body_of(frame)).body))
            got |= {each.payLoadData: each for each in response.messages}

    both = sent.keys() & got.keys()
    assert len(both) >= 8
    for data in both:
        assert (sent[data].checksum, sent[data].flag) == (got[data].checkSum, got[data].flag)


def test_the_compiled_module_is_that_of_the_present_source():
    built = Path(tubemq_entry.__file__)
    sources = [built.parent / f"tubemq_entry{kind}" for kind in (".py", ".pxd")]

    newest = max(path.stat().st_mtime for path in sources)
    assert built.suffix == ".py" or built.stat().st_mtime >= newest, "run `make native`"


def test_types_with_one_hash_are_distinguished_where_their_texts_are_given():
    """Java's hash of "Aa" is that of "BB"."""
    entries = placed(0, b"1", message_type="Aa") + placed(1, b"2", message_type="BB")
    hashes = frozenset([java_hash("BB")])

    for twin in TWINS:
        picked = twin.pick(entries, 7, 0, hashes, 1 << 20, 1000, frozenset([b"BB"]))
        assert [bytes(each.data) for each in picked.messages] == [b"2"]
        assert picked.next_offset == 2
    assert len(pick(entries, 0, hashes).messages) == 2
