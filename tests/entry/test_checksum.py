from hypothesis import given
from hypothesis import strategies as st

from trilogue.entry.checksum import combine, crc32c, crc32c_around


def test_checksum_is_castagnoli():
    """RFC 3720 appendix B.4 and the usual check value."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43


def test_checksum_goes_on_from_a_value():
    assert crc32c(b"56789", crc32c(memoryview(b"1234"))) == crc32c(b"123456789")


@given(st.binary(max_size=300), st.binary(max_size=5000))
def test_two_checksums_make_that_of_both_parts(first, second):
    assert combine(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


def test_large_parts_combine_as_well():
    first, second = b"ab" * 50_000, b"cde" * 1_000_001

    assert combine(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@given(st.lists(st.tuples(st.binary(max_size=40), st.booleans()), max_size=8), st.integers(0, 99))
def test_known_parts_are_taken_as_known(parts, seed):
    data = b"".join(part for part, _ in parts)
    known, at = [], 0
    for part, is_known in parts:
        if is_known:
            known.append((at, at + len(part), crc32c(part)))
        at += len(part)

    assert crc32c_around(data, known, seed) == crc32c(data, seed)


def test_a_part_whose_checksum_is_wrong_shows():
    data = bytes(100)
    wrong = crc32c(data[10:90]) ^ 1

    assert crc32c_around(data, [(10, 90, wrong)]) != crc32c(data)
