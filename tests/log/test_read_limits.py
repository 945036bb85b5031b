"""What one read may bring, from memory and from a file alike."""

from __future__ import annotations

from tests.log.rig import Rig, make_entry
from tests.log.test_partition_log import flush_all
from trilogue.log.partition_log import SegmentSlice, TailSlice


def test_a_cold_read_gives_no_entry_that_does_not_fit_unless_it_must():
    """A request may name thousands of partitions: one large entry of each is no answer."""
    rig = Rig()
    log = rig.open()
    for _ in range(3):
        rig.commit(1, make_entry(5_000))
    hot = log.partition(1).read(0, 6_000, at_least_one=False)
    hot_small = log.partition(1).read(0, 100, at_least_one=False)
    assert isinstance(hot, TailSlice)
    assert isinstance(hot_small, TailSlice)

    flush_all(rig)
    cold = log.partition(1).read(0, 6_000, at_least_one=False)
    cold_small = log.partition(1).read(0, 100, at_least_one=False)
    cold_one = log.partition(1).read(0, 100)

    assert isinstance(cold, SegmentSlice)
    assert isinstance(cold_small, SegmentSlice)
    assert isinstance(cold_one, SegmentSlice)
    assert cold.run() == b"".join(hot.slices)
    assert (len(cold_small.run()), hot_small.size) == (0, 0)
    assert len(cold_one.run()) == 5_000
