"""What a large cluster costs each node: the state of its metadata, starts, take-overs, moves.

    python -m benchmarks.control_plane [--nodes 200] [--partitions 1000000] [--slots 4096]

Memory is the growth of this process. No database: times are those of one core for the rules of
metadata, which every node that follows has, and for plans.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path

from trilogue.meta.change_log import encode_writes
from trilogue.meta.leases import Lease, LeaseWatch
from trilogue.meta.operations import (
    AllocateIds,
    BeginEpoch,
    GiveSlots,
    Op,
    PutPartitionState,
    PutTopic,
    TopicRow,
)
from trilogue.meta.state import MetaState, SlotRow, StateChange, apply_change, apply_writes
from trilogue.node.supervisor.slot_plans import plan_rebalance, spread_over

PARTITIONS_A_TOPIC = 100
FLUSHED = 5_000  # partitions that one flush moves


def resident_mib() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """Return milliseconds of CPU, and what the work returned."""
    began = time.process_time()
    result = work()
    return round((time.process_time() - began) * 1000, 2), result


def make_state(nodes: int, partitions: int, slots: int) -> MetaState:
    """Return the state of a cluster whose topics have 100 partitions each."""
    state = MetaState.new(b"c" * 16, 1, 1)
    state.slots = {slot: SlotRow(slot % nodes + 1, 1) for slot in range(slots)}
    apply_change(state, [BeginEpoch(node_id) for node_id in range(1, nodes + 1)])
    apply_change(state, [AllocateIds("partition", partitions)])
    chance = random.Random(1)
    for number in range(partitions // PARTITIONS_A_TOPIC):
        first = number * PARTITIONS_A_TOPIC + 1
        ids = tuple(range(first, first + PARTITIONS_A_TOPIC))
        row = TopicRow("t", "n", f"topic-{number}", chance.randbytes(16), ids, True, {}, 0, 1)
        apply_change(state, [PutTopic(row)])
    return state


def change_size(state: MetaState, ops: list[Op]) -> tuple[float, int, int]:
    """Return milliseconds of a change, its rows, and the bytes that every node follows."""
    took, made = timed(lambda: apply_change(state, ops))
    assert isinstance(made, StateChange)
    record = encode_writes(made.writes)
    apply_writes(state, made.writes)
    return took, len(made.writes), len(record)


def measure(nodes: int, partitions: int, slots: int) -> dict[str, object]:
    """Return the figures by name."""
    gc.collect()
    before = resident_mib()
    took, made = timed(lambda: make_state(nodes, partitions, slots))
    assert isinstance(made, MetaState)
    found: dict[str, object] = {
        "state_mib": round(resident_mib() - before),
        "make_s": round(took / 1000, 1),
    }
    owners = [made.slots[slot].node_id for slot in range(slots)]
    others = list(range(2, nodes + 1))
    found["begin_epoch_ms_rows_bytes"] = change_size(made, [BeginEpoch(1)])
    took, plan = timed(lambda: spread_over(owners, 1, others))
    assert isinstance(plan, dict)
    found["plan_spread_ms"] = took
    found["give_slots_ms_rows_bytes"] = change_size(made, [GiveSlots(plan)])
    weights = [random.Random(slot).random() for slot in range(slots)]
    took, plan = timed(lambda: plan_rebalance(owners, range(1, nodes + 2), weights))
    assert isinstance(plan, dict)
    found["plan_rebalance_ms"], found["rebalance_moves"] = took, len(plan)
    flush: list[Op] = [
        PutPartitionState(each, flushed_end=1) for each in range(1, min(FLUSHED, partitions) + 1)
    ]
    found["flush_ms_rows_bytes"] = change_size(made, flush)
    watch, leases = LeaseWatch(3.0, time.monotonic), [
        Lease(node_id, 1, 1, b"") for node_id in range(1, nodes + 1)
    ]  # fmt: skip
    found["look_at_leases_ms"], _ = timed(lambda: watch.over(leases, b"-"))
    found["owned_slots_ms"], _ = timed(lambda: [each for each in made.slots if made.owns(each)])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--slots", type=int, default=4_096)
    given = parser.parse_args()
    print(json.dumps(measure(given.nodes, given.partitions, given.slots), indent=2))


if __name__ == "__main__":
    main()
