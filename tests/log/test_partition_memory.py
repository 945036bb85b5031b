"""What an idle partition costs: a node may have ten thousand of them."""

from __future__ import annotations

import gc
import tracemalloc

from tests.log.rig import Rig, make_entry
from trilogue.log.log import LogLimits

COUNT, WARM = 1_000, 50


def test_a_partition_with_one_small_message_takes_little():
    rig = Rig(partitions=WARM, limits=LogLimits(reserve_bytes=0))
    rig.open()
    entry = make_entry(100)
    for number in range(1, WARM + 1):
        rig.append(number, entry)
    rig.loop.run()
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(WARM + 1, WARM + COUNT + 1):
            rig.log.create_partition(number, 1)
            rig.append(number, entry)
            if number % 10 == 0:  # ten share a frame
                rig.loop.run()
        rig.loop.run()
        gc.collect()
        taken = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    rig.shut()

    ours = taken.filter_traces([tracemalloc.Filter(True, "*/trilogue/log/*")])  # not the fake disk
    assert sum(each.size for each in ours.statistics("filename")) / COUNT < 1_200
