from trilogue.entry.checksum import crc32c


def test_checksum_is_castagnoli():
    """RFC 3720 appendix B.4 and the usual check value."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43


def test_checksum_goes_on_from_a_value():
    assert crc32c(b"56789", crc32c(memoryview(b"1234"))) == crc32c(b"123456789")
