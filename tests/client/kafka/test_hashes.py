"""Keys are hashed as Java's client does."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure import load_pure
from trilogue.client.kafka.producer import hashes
from trilogue.entry import pack

NAME = "trilogue.client.kafka.producer.hashes"
PURE_PACK = load_pure("trilogue.entry.pack")
PURE = load_pure(NAME, trilogue__entry__pack=PURE_PACK)
TWINS = [(hashes, pack), (PURE, PURE_PACK)]


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
    for module, _ in TWINS:
        assert signed & 0x7FFFFFFF == module.murmur2(key)


@given(keys=st.lists(st.none() | st.binary(max_size=20)), count=st.integers(1, 100))
def test_a_column_of_keys_is_assigned_as_each_key_is(keys, count):
    ends = array("i", [0])
    for key in keys:
        ends.append(ends[-1] + len(key or b""))
    bits = bytearray(len(keys) // 8 + 1)
    for row, key in enumerate(keys):
        bits[row >> 3] |= (key is not None) << (row & 7)
    data = memoryview(b"".join(key or b"" for key in keys))
    expected = [0 if key is None else PURE.murmur2(key) % count for key in keys]

    for module, packing in TWINS:
        column = packing.ByteInput(len(keys), memoryview(bits), memoryview(ends).cast("B"), data)
        found = module.assign_partitions(column, len(keys), count)

        assert memoryview(found).cast("i").tolist() == expected


@given(numbers=st.lists(st.integers(0, 6)))
def test_rows_are_grouped_in_their_order(numbers):
    given_numbers = memoryview(array("i", numbers)).cast("B")
    expected = sorted(range(len(numbers)), key=numbers.__getitem__)

    for module, _ in TWINS:
        order, ends = module.group_rows(given_numbers, len(numbers), 7)

        assert memoryview(order).cast("i").tolist() == expected
        assert memoryview(ends).cast("i").tolist()[:7] == [
            sum(number <= each for number in numbers) for each in range(7)
        ]


@pytest.mark.parametrize("numbers", [[0, 3], [-1], [0]])
def test_numbers_of_partitions_that_are_not_there_are_refused(numbers):
    rows = len(numbers) + (numbers == [0])  # fewer numbers than rows
    for module, _ in TWINS:
        with pytest.raises(ValueError, match=r"partition|fewer"):
            module.group_rows(memoryview(array("i", numbers)).cast("B"), rows, 3)


def test_compiled_hashes_are_those_of_the_present_source():
    built = Path(hashes.__file__)
    newest = max(built.with_name(f"hashes{kind}").stat().st_mtime for kind in (".py", ".pxd"))

    assert PURE.__file__.endswith(".py")
    assert built.suffix == ".py" or built.stat().st_mtime >= newest, "run `make native`"
