"""Which node a maker of partitions wants each of them to be on: there is one to choose from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trilogue.broker.errors import InvalidAssignment


def check_assignment(assignment: Mapping[int, Sequence[int]], node_id: int) -> None:
    """Refuse what is not a node for each partition from 0 on, and this one."""
    if sorted(assignment) != list(range(len(assignment))):
        raise InvalidAssignment("an assignment names every partition from 0 on, once")
    check_nodes(assignment.values(), node_id)


def check_nodes(assignments: Iterable[Sequence[int]], node_id: int) -> None:
    """Refuse other nodes than this one, and more than one copy."""
    for nodes in assignments:
        if list(nodes) != [node_id]:
            raise InvalidAssignment(f"node {node_id} is the only one")
