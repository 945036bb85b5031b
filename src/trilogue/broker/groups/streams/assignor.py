"""Which member gets which tasks: the assignor `sticky` of streams groups.

Every member has as many active tasks as the others, or one more. A task stays with the member that
had it, then goes to one that had its standby copy, then to the process with the least load, where
load is tasks per member. Standby copies go to processes that do not have the task: to the member
that had it active before, then to one that had the standby copy, then by load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from trilogue.broker.groups.consumer.steps import STEP
from trilogue.broker.groups.streams.tasks import NO_TASKS, TaskKey, TaskRole, Tasks
from trilogue.broker.groups.streams.topology_configuration import ConfiguredSubtopology
from trilogue.log.steps import Steps

TaskId = tuple[str, int]  # subtopology, partition


class TaskMember(NamedTuple):
    """What the assignor knows of a member."""

    member_id: str
    process_id: str
    previous: Tasks = NO_TASKS


class _Process:
    """The members of one process and the tasks that they are given."""

    def __init__(self, order: int) -> None:
        self.order = order
        self.counts: dict[str, int] = {}  # tasks by member
        self.tasks: set[TaskId] = set()

    @property
    def load(self) -> float:
        return len(self.tasks) / len(self.counts)

    def least_loaded_member(self) -> str:
        return min(self.counts, key=self.counts.__getitem__)


class _Quota:
    """How many tasks a member may have so that the others get as many."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.per_member = -(-tasks // members)

    def note(self, count: int) -> None:
        """Note that a member has so many tasks now."""
        if count == self.per_member and self._members:
            self._members -= 1
            self._tasks -= count
            self.per_member = -(-self._tasks // self._members) if self._members else 0


class _Assignment:
    """An assignment in the making."""

    def __init__(self, members: Sequence[TaskMember], active: int, standby: int) -> None:
        self.processes: dict[str, _Process] = {}
        self.process_of: dict[str, _Process] = {}
        for each in members:
            process = self.processes.setdefault(each.process_id, _Process(len(self.processes)))
            process.counts[each.member_id] = 0
            self.process_of[each.member_id] = process
        self.active_quota = _Quota(active, len(members))
        self.total_quota = _Quota(active + standby, len(members))
        self.given: dict[str, dict[TaskKey, set[int]]] = {each.member_id: {} for each in members}

    def give(self, member_id: str, task: TaskId, role: TaskRole) -> None:
        """Give a member a task."""
        process = self.process_of[member_id]
        process.tasks.add(task)
        process.counts[member_id] += 1
        count = process.counts[member_id]
        if role is TaskRole.ACTIVE:
            self.active_quota.note(count)
        self.total_quota.note(count)
        self.given[member_id].setdefault((role, task[0]), set()).add(task[1])

    def has_room(self, member_id: str, quota: _Quota) -> bool:
        """Whether a member has fewer tasks than its quota."""
        return self.process_of[member_id].counts[member_id] < quota.per_member

    def least_loaded(self, member_ids: Iterable[str], task: TaskId | None) -> str | None:
        """Return the member with the least load whose process does not have the task."""
        found = [
            (self.process_of[each].load, self.process_of[each].counts[each], each)
            for each in member_ids
            if task is None or task not in self.process_of[each].tasks
        ]
        return min(found)[2] if found else None

    def targets(self) -> dict[str, Tasks]:
        """Return the tasks of each member."""
        return {
            member_id: {key: frozenset(numbers) for key, numbers in tasks.items()}
            for member_id, tasks in self.given.items()
        }


def assign_tasks(
    members: Sequence[TaskMember],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    standby_replicas: int,
) -> Steps[dict[str, Tasks]]:
    """Return the tasks of each member; in steps."""
    if not members:
        return {}
    active = [(name, n) for name, sub in subtopologies.items() for n in range(sub.task_count)]
    stateful = [task for task in active if subtopologies[task[0]].is_stateful]
    assignment = _Assignment(members, len(active), len(stateful) * standby_replicas)
    former_active, former_standby = _index_previous(members)
    left: list[TaskId] = []
    for number, task in enumerate(sorted(active, key=lambda each: (each[1], each[0])), 1):
        member_id = former_active.get(task)
        if member_id is not None and assignment.has_room(member_id, assignment.active_quota):
            assignment.give(member_id, task, TaskRole.ACTIVE)
        else:
            left.append(task)
        if number % STEP == 0:
            yield
    tasks, left = left, []
    for task in tasks:
        member_id = assignment.least_loaded(former_standby.get(task, ()), None)
        if member_id is not None and assignment.has_room(member_id, assignment.active_quota):
            assignment.give(member_id, task, TaskRole.ACTIVE)
        else:
            left.append(task)
    yield from _assign_by_load(assignment, sorted(left), TaskRole.ACTIVE, 1)
    if standby_replicas:
        yield from _assign_standby(
            assignment, stateful, standby_replicas, former_active, former_standby
        )
    return assignment.targets()


def _index_previous(
    members: Sequence[TaskMember],
) -> tuple[dict[TaskId, str], dict[TaskId, list[str]]]:
    """Return the members that had a task before: active, and as a standby or warm-up copy."""
    active: dict[TaskId, str] = {}
    standby: dict[TaskId, list[str]] = {}
    for member in members:
        for (role, name), numbers in member.previous.items():
            for number in numbers:
                if role is TaskRole.ACTIVE:
                    active[name, number] = member.member_id
                else:
                    standby.setdefault((name, number), []).append(member.member_id)
    return active, standby


def _assign_standby(
    assignment: _Assignment,
    stateful: Sequence[TaskId],
    replicas: int,
    former_active: Mapping[TaskId, str],
    former_standby: Mapping[TaskId, list[str]],
) -> Steps[None]:
    quota = assignment.total_quota
    for number, task in enumerate(sorted(stateful, key=lambda each: (each[1], each[0])), 1):
        for remaining in range(replicas, 0, -1):
            former = [former_active[task]] if task in former_active else []
            member_id = assignment.least_loaded(former, task) or assignment.least_loaded(
                former_standby.get(task, ()), task
            )
            if member_id is None or not assignment.has_room(member_id, quota):
                yield from _assign_by_load(assignment, [task], TaskRole.STANDBY, remaining)
                break
            assignment.give(member_id, task, TaskRole.STANDBY)
        if number % STEP == 0:
            yield


def _assign_by_load(
    assignment: _Assignment, tasks: Sequence[TaskId], role: TaskRole, copies: int
) -> Steps[None]:
    """Give each task to the processes with the least load that do not have it yet."""
    heap = [(process.load, process.order, process) for process in assignment.processes.values()]
    heapify(heap)
    for number, task in enumerate(tasks, 1):
        skipped = []
        for _ in range(copies):
            while heap and task in heap[0][2].tasks:
                skipped.append(heappop(heap))
            if not heap:
                break  # more copies than processes
            process = heappop(heap)[2]
            assignment.give(process.least_loaded_member(), task, role)
            skipped.append((process.load, process.order, process))
        for each in skipped:
            heappush(heap, each)
        if number % STEP == 0:
            yield
