"""Creating partitions: assignments and replicas that clients request.

New partitions become visible with their topic's row; placement.py opens their logs. Durable
subscriptions of an existing topic get a cursor on each one (subscriptions/added_partitions.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trilogue.broker.errors import InvalidAssignment, InvalidSetting
from trilogue.broker.settings.topic_table import MIN_IN_SYNC


def check_assignment(assignment: Mapping[int, Sequence[int]], node_id: int) -> None:
    """Refuse an assignment that does not name this node for each partition from 0 on."""
    if sorted(assignment) != list(range(len(assignment))):
        raise InvalidAssignment("an assignment names every partition from 0 on, once")
    check_nodes(assignment.values(), node_id)


def check_nodes(assignments: Iterable[Sequence[int]], node_id: int) -> None:
    """Refuse other nodes than this one, and more than one copy."""
    for nodes in assignments:
        if list(nodes) != [node_id]:
            raise InvalidAssignment(f"node {node_id} is the only one")


def check_in_sync(settings: Mapping[str, str], before: Mapping[str, str], most: int) -> None:
    """Raise InvalidSetting for more replicas in sync than there can be.

    A value that the topic has already stays, though there may be fewer nodes now.
    """
    wanted = settings.get(MIN_IN_SYNC)
    if wanted is not None and wanted != before.get(MIN_IN_SYNC) and int(wanted) > most:
        raise InvalidSetting(f"{MIN_IN_SYNC}={wanted}: up to {most} replicas are in sync here")
