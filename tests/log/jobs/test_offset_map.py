from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from trilogue.log.jobs.offset_map import OffsetMap, digest_of


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 2**62)), max_size=3000))
@settings(max_examples=20, deadline=None)
def test_the_map_knows_what_a_dict_knows(pairs: list[tuple[int, int]]):
    known: dict[bytes, int] = {}
    found = OffsetMap(1 << 16)
    for key, offset in pairs:
        digest = digest_of(b"%d" % key)
        known[digest] = max(offset, known.get(digest, -1))
        found.put(digest, offset)

    assert found.count == len(known)
    assert all(found.get(digest) == offset for digest, offset in known.items())
    assert found.get(digest_of(b"another")) == -1


def test_the_map_stays_within_its_limit():
    found = OffsetMap(1 << 20)

    assert (1 << 20) // 64 <= found.key_limit <= (1 << 20) // 32
