"""Keys are hashed as Java's client does."""

from __future__ import annotations

import pytest

from trilogue.client.kafka.producer.hashes import murmur2


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_numbers_of_the_java_client(key, signed):
    assert signed & 0x7FFFFFFF == murmur2(key)
