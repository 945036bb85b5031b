"""The sticky assignor of tasks: every task once, in balance, and where its state is."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trilogue.broker.groups.streams.assignor import TaskMember, assign_tasks
from trilogue.broker.groups.streams.tasks import NO_TASKS, TaskRole, Tasks, tasks_of_role
from trilogue.broker.groups.streams.topology import InternalTopic, Subtopology
from trilogue.broker.groups.streams.topology_configuration import ConfiguredSubtopology
from trilogue.broker.names import parse_kafka
from trilogue.log.steps import Steps

CHANGELOG = (InternalTopic(parse_kafka("c")),)


def run(steps: Steps[dict[str, Tasks]]) -> dict[str, Tasks]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def stateful(**counts: int) -> dict[str, ConfiguredSubtopology]:
    return {
        name: ConfiguredSubtopology(count, Subtopology(name, changelogs=CHANGELOG))
        for name, count in counts.items()
    }


def sizes(target: dict[str, Tasks], role: TaskRole) -> dict[str, int]:
    return {
        member: sum(map(len, tasks_of_role(tasks, role).values()))
        for member, tasks in target.items()
    }


def test_active_tasks_are_shared_out_evenly():
    members = [TaskMember(name, name) for name in "abc"]

    target = run(assign_tasks(members, stateful(x=4, y=3), 0))

    assert sorted(sizes(target, TaskRole.ACTIVE).values()) == [2, 2, 3]
    assert set(sizes(target, TaskRole.STANDBY).values()) == {0}


def test_tasks_stay_and_a_new_member_gets_its_share():
    first = run(assign_tasks([TaskMember("a", "a")], stateful(x=4), 0))
    second = run(
        assign_tasks([TaskMember("a", "a", first["a"]), TaskMember("b", "b")], stateful(x=4), 0)
    )

    assert sizes(second, TaskRole.ACTIVE) == {"a": 2, "b": 2}
    kept = tasks_of_role(second["a"], TaskRole.ACTIVE)["x"]
    assert kept < tasks_of_role(first["a"], TaskRole.ACTIVE)["x"]


def test_a_task_goes_to_the_process_that_has_its_standby_copy():
    both = [TaskMember("a", "a"), TaskMember("b", "b")]
    first = run(assign_tasks(both, stateful(x=2), 1))
    lost = tasks_of_role(first["a"], TaskRole.ACTIVE)["x"]
    assert tasks_of_role(first["b"], TaskRole.STANDBY)["x"] == lost

    second = run(assign_tasks([TaskMember("b", "b", first["b"])], stateful(x=2), 1))

    assert tasks_of_role(second["b"], TaskRole.ACTIVE)["x"] == frozenset({0, 1})
    assert sizes(second, TaskRole.STANDBY) == {"b": 0}  # the process has these tasks


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=7),
    st.dictionaries(st.sampled_from("xyz"), st.integers(1, 9), min_size=1),
    st.integers(0, 2),
)
def test_every_task_is_active_once_and_a_process_has_one_copy_of_it(
    processes: list[int], counts: dict[str, int], replicas: int
):
    members = [TaskMember(f"m{at}", f"p{each}") for at, each in enumerate(processes)]
    previous: dict[str, Tasks] = {}
    for round_ in range(2):
        some = members[round_:] or members
        some = [m._replace(previous=previous.get(m.member_id, NO_TASKS)) for m in some]
        previous = target = run(assign_tasks(some, stateful(**counts), replicas))
        active = Counter(
            (name, number)
            for tasks in target.values()
            for name, numbers in tasks_of_role(tasks, TaskRole.ACTIVE).items()
            for number in numbers
        )
        wanted = {(name, number) for name, count in counts.items() for number in range(count)}
        assert active == Counter(wanted)
        copies = Counter(
            (member.process_id, name, number)
            for member in some
            for (_, name), numbers in target[member.member_id].items()
            for number in numbers
        )
        assert set(copies.values()) == {1}
        held = Counter((name, number) for _, name, number in copies)
        here = len({member.process_id for member in some})
        assert set(held.values()) == {min(1 + replicas, here)}
