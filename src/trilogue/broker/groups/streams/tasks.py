"""Tasks of a streams group: a subtopology and a partition number, in a role.

A task processes one partition of each source topic of its subtopology. Its active copy is with one
member; standby and warm-up copies follow its changelogs on other processes. Sets of tasks are sets
of partition numbers by role and subtopology (groups/partition_sets.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, unique
from typing import Final

from trilogue.broker.groups.group_members import PartitionOwners


@unique
class TaskRole(Enum):
    """What a member does with a task. The values are those on disk."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARMUP = "warmup"


TaskKey = tuple[TaskRole, str]  # and the id of a subtopology
Tasks = Mapping[TaskKey, frozenset[int]]

NO_TASKS: Final[Tasks] = {}


def tasks_of_role(tasks: Tasks, role: TaskRole) -> dict[str, frozenset[int]]:
    """Return the tasks of one role, by subtopology."""
    return {key[1]: numbers for key, numbers in tasks.items() if key[0] is role}


class TaskOwners:
    """Which members hold which tasks.

    An active task is with one member. A process has one copy of a task at most, whatever its role
    and whichever member of the process has it, since they share the state on disk.
    """

    def __init__(self) -> None:
        self._active = PartitionOwners[TaskKey]()
        self._held: dict[str, Tasks] = {}
        self._process_ids: dict[str, str] = {}
        self._members: dict[str, set[str]] = {}  # process id -> members

    def set_process(self, member_id: str, process_id: str | None) -> None:
        """Note in which process a member runs; None: it has gone."""
        former = self._process_ids.pop(member_id, None)
        if former is not None:
            self._members[former].discard(member_id)
            if not self._members[former]:
                del self._members[former]
        if process_id is not None:
            self._process_ids[member_id] = process_id
            self._members.setdefault(process_id, set()).add(member_id)

    def free(self, key: TaskKey, numbers: Iterable[int], member_id: str) -> frozenset[int]:
        """Return the tasks that a member may have now."""
        role, subtopology_id = key
        found = frozenset(numbers)
        if role is TaskRole.ACTIVE:
            found = self._active.free(key, found, member_id)
        process_id = self._process_ids.get(member_id)
        for other in self._members.get(process_id, ()) if process_id is not None else ():
            if other == member_id:
                continue
            held = self._held.get(other, NO_TASKS)
            for each in TaskRole:
                found -= held.get((each, subtopology_id), frozenset())
        return found

    def update(self, member_id: str, before: Tasks, after: Tasks) -> None:
        """Note what a member holds now."""
        if before is after:
            return
        self._active.update(member_id, active_tasks(before), active_tasks(after))
        if after:
            self._held[member_id] = after
        else:
            self._held.pop(member_id, None)


def active_tasks(tasks: Tasks) -> Tasks:
    """Return the active tasks."""
    return {key: numbers for key, numbers in tasks.items() if key[0] is TaskRole.ACTIVE}
