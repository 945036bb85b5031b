"""Any protobuf message of Pulsar's protocol, in any spelling that a parser has to take."""

from __future__ import annotations

from struct import pack

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import strategies as st

VARINTS = {
    FieldDescriptor.TYPE_INT32,
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_UINT32,
    FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_BOOL,
}
NUMBERS = st.one_of(
    st.integers(0, 40),
    st.integers(0, 2**64 - 1),
    st.sampled_from([2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]),
)


def varint(value: int, padding: int = 0) -> bytes:
    """Spell a number, with up to ten bytes when padded."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    for _ in range(min(padding, 10 - len(out))):
        out[-1] |= 128
        out.append(0)
    return bytes(out)


def tagged(number: int, kind: int, octets: bytes) -> bytes:
    return varint(number << 3 | kind) + octets


def sized(number: int, octets: bytes) -> bytes:
    return tagged(number, 2, varint(len(octets)) + octets)


@st.composite
def unknown_fields(draw: st.DrawFn) -> bytes:
    number = draw(st.sampled_from([33, 34, 63, 64, 65, 100, 2**20, 2**29 - 1]))
    kind = draw(st.sampled_from([0, 1, 2, 5]))
    match kind:
        case 0:
            return tagged(number, 0, varint(draw(NUMBERS)))
        case 1:
            return tagged(number, 1, draw(st.binary(min_size=8, max_size=8)))
        case 2:
            return sized(number, draw(st.binary(max_size=5)))
    return tagged(number, 5, draw(st.binary(min_size=4, max_size=4)))


@st.composite
def one_field(draw: st.DrawFn, field: FieldDescriptor) -> bytes:
    if field.type == FieldDescriptor.TYPE_ENUM:
        number = draw(st.sampled_from([value.number for value in field.enum_type.values]))
        return tagged(field.number, 0, varint(number, draw(st.integers(0, 9))))
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return tagged(field.number, 1, pack("<d", draw(st.floats(allow_nan=False))))
    if field.type in VARINTS:
        return tagged(field.number, 0, varint(draw(NUMBERS), draw(st.integers(0, 9))))
    if field.type == FieldDescriptor.TYPE_STRING:
        return sized(field.number, draw(st.text(max_size=8)).encode())
    if field.type == FieldDescriptor.TYPE_BYTES:
        return sized(field.number, draw(st.binary(max_size=8)))
    assert field.type == FieldDescriptor.TYPE_MESSAGE
    return sized(field.number, draw(encoded(field.message_type)))


@st.composite
def encoded(draw: st.DrawFn, kind: Descriptor) -> bytes:
    """The bytes of a message: any order, repeated fields, unknown ones, long numbers."""
    parts = []
    for field in kind.fields:
        required = field.is_required
        if field.message_type is kind:
            continue  # message ids within message ids, which no client reads
        count = draw(st.integers(1 if required else 0, 3 if field.is_repeated else 1))
        if not count and required:
            count = 1
        if field.type != FieldDescriptor.TYPE_MESSAGE and draw(st.integers(0, 9)) == 0:
            count += 1  # the last one counts
        parts += [draw(one_field(field)) for _ in range(count)]
    parts += draw(st.lists(unknown_fields(), max_size=2))
    return b"".join(draw(st.permutations(parts)))
