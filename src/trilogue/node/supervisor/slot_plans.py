"""Plans of who owns which slots: pure functions, for starts, moves, drains and rebalances.

A plan maps slots to their next owners and names no slot that stays. Fewer moves are better than an
even spread: the nodes of a move start again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from trilogue.node.errors import ControlError

TOLERANCE: Final = 0.2  # of a node's share of the load: what is nearer stays
BYTES_MIN: Final = 10_240.0  # bytes/s of a whole cluster: less says nothing about its slots
PARTITIONS_SHARE: Final = 0.1  # what partitions count beside bytes
SLOTS_SHARE: Final = 0.01


def spread_slots(owners: Sequence[int], node_ids: Sequence[int]) -> tuple[int, ...]:
    """Return owners among these nodes: their numbers differ by one at most, and few slots move.

    Slots that are neighbours go to different nodes, since a topic's partitions are neighbours.
    """
    held: dict[int, list[int]] = {node_id: [] for node_id in node_ids}
    for slot, owner in enumerate(owners):
        if owner in held:
            held[owner].append(slot)
    least, more = divmod(len(owners), len(node_ids))
    by_size = sorted(node_ids, key=lambda each: (-len(held[each]), each))
    room = {node_id: least + (rank < more) for rank, node_id in enumerate(by_size)}
    spread: dict[int, int] = {}
    for node_id, slots in held.items():
        kept = min(room[node_id], len(slots))
        spread |= {slots[at * len(slots) // kept]: node_id for at in range(kept)}
        room[node_id] -= kept
    free = deque(node_id for node_id in node_ids if room[node_id])
    for slot in range(len(owners)):
        if slot in spread:
            continue
        node_id = spread[slot] = free.popleft()
        room[node_id] -= 1
        if room[node_id]:
            free.append(node_id)
    return tuple(spread[slot] for slot in range(len(owners)))


def parse_move(
    content: Mapping[str, Any], owners: Sequence[int], node_ids: Sequence[int]
) -> dict[int, int]:
    """Return the slots that a request moves, with their new owners; ControlError."""
    try:
        if "drain" in content:
            node_id = int(content["drain"])
            _check_node(node_id, node_ids)
            return spread_over(owners, node_id, [each for each in node_ids if each != node_id])
        if "rebalance" in content:
            tolerance = float(content["rebalance"])
            return plan_rebalance(owners, node_ids, [1.0] * len(owners), tolerance)
        wanted = {int(slot): int(node_id) for slot, node_id in content["move"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ControlError("not a request") from error
    for slot, node_id in wanted.items():
        if not 0 <= slot < len(owners):
            raise ControlError(f"there is no slot {slot}: they are 0 to {len(owners) - 1}")
        _check_node(node_id, node_ids)
    return {slot: node_id for slot, node_id in wanted.items() if owners[slot] != node_id}


def _check_node(node_id: int, node_ids: Sequence[int]) -> None:
    if node_id not in node_ids:
        known = ", ".join(map(str, node_ids))
        raise ControlError(f"there is no node {node_id}: they are {known}")


def spread_over(
    owners: Sequence[int],
    node_id: int,
    others: Collection[int],
    weights: Sequence[float] | None = None,
) -> dict[int, int]:
    """Give each slot of a node to the one of the others that has least: of slots, or of load."""
    if not others:
        raise ControlError(f"node {node_id} is the only one")
    loads = dict.fromkeys(others, 0.0)
    weights = weights or [1.0] * len(owners)
    for slot, owner in enumerate(owners):
        if owner in loads:
            loads[owner] += weights[slot]
    own = [slot for slot, owner in enumerate(owners) if owner == node_id]
    wanted = {}
    for slot in sorted(own, key=lambda each: (-weights[each], each)):
        wanted[slot] = min(loads, key=lambda each: (loads[each], each))
        loads[wanted[slot]] += weights[slot]
    return wanted


def weigh_slots(rates: Mapping[int, float], partitions: Sequence[int]) -> list[float]:
    """Return the load of each slot, of bytes/s by slot and the number of partitions of each.

    Bytes count most. An idle cluster goes by its partitions, an empty one by its slots.
    """
    count = len(partitions)
    taken = [max(0.0, rates.get(slot, 0.0)) for slot in range(count)]
    all_bytes, all_partitions = sum(taken), sum(partitions)
    weights = [SLOTS_SHARE / count] * count
    for slot in range(count):
        if all_bytes >= BYTES_MIN:
            weights[slot] += taken[slot] / all_bytes
        if all_partitions:
            weights[slot] += PARTITIONS_SHARE * partitions[slot] / all_partitions
    return weights


def plan_rebalance(
    owners: Sequence[int],
    node_ids: Collection[int],
    weights: Sequence[float],
    tolerance: float = TOLERANCE,
) -> dict[int, int]:
    """Return the moves after which each node has about the same load; few slots move.

    Slots of owners that are not among `node_ids` stay, and are no part of the load that is spread.
    """
    held: dict[int, set[int]] = {node_id: set() for node_id in sorted(node_ids)}
    for slot, owner in enumerate(owners):
        if owner in held:
            held[owner].add(slot)
    loads = {node_id: sum(weights[slot] for slot in held[node_id]) for node_id in held}
    share = sum(loads.values()) / len(loads) if loads else 0.0
    moves: dict[int, int] = {}
    while True:
        step = _next_move(held, loads, weights, share, tolerance)
        if step is None:
            return {slot: to for slot, to in moves.items() if owners[slot] != to}
        slot, source, to = step
        held[source].remove(slot)
        held[to].add(slot)
        loads[source] -= weights[slot]
        loads[to] += weights[slot]
        moves[slot] = to


def _next_move(
    held: Mapping[int, set[int]],
    loads: Mapping[int, float],
    weights: Sequence[float],
    share: float,
    tolerance: float,
) -> tuple[int, int, int] | None:
    """Return a slot, its owner and its next owner; None if no move is worth it.

    Each move lowers the difference of two nodes, so there is an end.
    """
    by_load = sorted(loads, key=lambda each: (loads[each], each))
    least, most = share * (1 - tolerance), share * (1 + tolerance)
    for source in reversed(by_load):
        for to in by_load:
            gap = loads[source] - loads[to]
            if gap <= 0 or (loads[source] <= most and loads[to] >= least):
                break  # the nodes behind `to` have more
            wanted = min(loads[source] - share, share - loads[to])
            fits = [each for each in held[source] if weights[each] < gap * (1 - 1e-9)]
            if fits:
                slot = min(fits, key=lambda each: (abs(weights[each] - wanted), each))
                return slot, source, to
    return None
