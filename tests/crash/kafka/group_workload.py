"""Kafka groups, quotas and settings of a node in a `World`: committed offsets, records, overrides.

After a crash, state that goes through the journal (committed offsets, their removal, group records)
is that of one moment at or after the last change known to be durable. State that goes through meta
is that of the last confirmed change, or of the change in flight. `check` compares a node that has
just started with these possible states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

from tests.crash.log_workload import durable, make_topic
from tests.waiting import pass_time
from trilogue.broker.errors import UnknownGroup
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.groups.group import CLASSIC, CONSUMER
from trilogue.broker.names import parse_kafka
from trilogue.broker.promise import Promise
from trilogue.broker.quotas.quotas import QuotaEntity, QuotaKind
from trilogue.broker.settings.topic_settings import Change
from trilogue.node.node import Node

TOPIC, PARTITIONS = "t", 3
GROUPS = ("a", "b", "c")
CLIENTS = ("x", "y", "")

Positions = Mapping[tuple[str, int], int]  # by group and partition


def changes_of(key: str, value: str | None) -> list[tuple[str, Change, str | None]]:
    """The list of one change: set the value, or reset the setting for None."""
    return [(key, Change.RESET if value is None else Change.SET, value)]


class PossibleStates:
    """The states that one value may have after a crash."""

    def __init__(self, value: Any) -> None:
        self.states: list[Any] = [value]
        """The last state known to be durable, then each state requested after it."""

    @property
    def latest(self) -> Any:
        return self.states[-1]

    def request(self, value: Any) -> int:
        self.states.append(value)
        return len(self.states)

    def confirm(self, value: Any) -> None:
        """Record that this state is durable: no earlier one is possible from now on."""
        at = max(at for at, each in enumerate(self.states) if each is value)
        del self.states[:at]

    def check_recovered(self, value: Any) -> None:
        """Check the value that a restart has recovered; it is the only possible state then."""
        assert value in self.states, (value, self.states)
        self.states = [value]


class GroupWorkload:
    """All clients of the node; `script` continues their work in each life of the node."""

    def __init__(self, acts: int = 120) -> None:
        self.acts = acts
        self.done = 0
        self.is_made = False
        self.positions = PossibleStates({})
        self.kinds = {group: PossibleStates(None) for group in GROUPS}  # None: no record
        self.quotas = PossibleStates({})
        self.values = {all_nodes: PossibleStates({}) for all_nodes in (False, True)}
        self.group_values = {group: PossibleStates({}) for group in GROUPS}

    async def script(self, node: Node) -> None:
        """Check the node, and do the remaining work."""
        if node.storage.broker.cluster.find_topic(parse_kafka(TOPIC)) is None:
            assert not self.is_made, "the topic is gone"
            await make_topic(node, TOPIC, PARTITIONS, {})
        self.is_made = True
        self.check(node)
        while self.done < self.acts:
            self.done += 1
            await self.act(node, Random(self.done))
        await durable(node)
        await pass_time(20)
        self.check(node)

    async def act(self, node: Node, chance: Random) -> None:
        for _ in range(3):
            chance.choice((self.commit, self.commit, self.commit, self.remove, self.delete))(
                node, chance
            )
        self.live(node, chance)
        if self.done % 3 == 0:
            await durable(node)  # and everything before it in the journal
            for states in self.kinds.values():
                states.confirm(states.latest)
        if self.done % 4 == 0:
            await chance.choice((self.set_quota, self.set_value, self.set_group_value))(
                node, chance
            )
        if self.done % 7 == 0:
            await pass_time(1.0)

    # -- through the journal

    def confirm_later(self, promise: Promise[None], state: Positions) -> None:
        def confirm(done: Promise[None]) -> None:
            if done.error is None:
                self.positions.confirm(state)

        promise.then(confirm)

    def commit(self, node: Node, chance: Random) -> None:
        group, numbers = chance.choice(GROUPS), chance.sample(range(PARTITIONS), 2)
        state = {**self.positions.latest, **{(group, each): self.done for each in numbers}}
        self.positions.request(state)
        moves = [CursorMove(self.ids(node)[each], self.done) for each in numbers]
        self.confirm_later(node.storage.broker.commit(Protocol.KAFKA, group, moves), state)

    def remove(self, node: Node, chance: Random) -> None:
        """OffsetDelete."""
        group, number = chance.choice(GROUPS), chance.randrange(PARTITIONS)
        before = self.positions.latest
        state = {place: at for place, at in before.items() if place != (group, number)}
        self.positions.request(state)
        ids = [self.ids(node)[number]]
        self.confirm_later(node.storage.broker.group_admin.remove(group, ids), state)

    def delete(self, node: Node, chance: Random) -> None:
        """DeleteGroups."""
        group = chance.choice(GROUPS)
        try:
            promise = node.storage.broker.group_admin.delete(group)
        except UnknownGroup:
            return
        state = {place: at for place, at in self.positions.latest.items() if place[0] != group}
        self.positions.request(state)
        self.kinds[group].request(None)
        self.confirm_later(promise, state)

    def live(self, node: Node, chance: Random) -> None:
        """Record that a group got its first member or lost its last one: no caller waits for it."""
        group, kind = chance.choice(GROUPS), chance.choice((CLASSIC, CONSUMER))
        records = node.storage.broker.groups.records
        mark = records.mark_occupied if chance.random() < 0.5 else records.mark_empty
        mark(group, kind, "consumer")
        self.kinds[group].request(kind)

    # -- through meta

    async def set_quota(self, node: Node, chance: Random) -> None:
        entity = QuotaEntity(client=chance.choice(CLIENTS))
        rate = chance.choice((None, float(self.done)))
        state = {one: at for one, at in self.quotas.latest.items() if one != entity}
        if rate is not None:
            state[entity] = {QuotaKind.PRODUCED: rate}
        self.quotas.request(state)
        plan = node.storage.broker.quotas.plan_alter([(entity, {QuotaKind.PRODUCED: rate})])
        await node.metadata_writer.write(plan)
        self.quotas.confirm(state)

    async def set_value(self, node: Node, chance: Random) -> None:
        all_nodes = chance.random() < 0.5
        values, states = node.storage.broker.values, self.values[all_nodes]
        key = chance.choice(("log.retention.bytes", "log.retention.ms"))
        value = chance.choice((None, f"{self.done}000"))
        state = values.check(changes_of(key, value), all_nodes=all_nodes, replace=False)
        states.request(state)
        await node.metadata_writer.write(values.plan_alter(state, all_nodes=all_nodes))
        states.confirm(state)

    async def set_group_value(self, node: Node, chance: Random) -> None:
        group = chance.choice(GROUPS)
        values, states = node.storage.broker.group_values, self.group_values[group]
        value = chance.choice((None, f"{50_000 - self.done}"))
        state = values.check(group, changes_of("consumer.session.timeout.ms", value), replace=False)
        states.request(state)
        await node.metadata_writer.write(values.plan_alter(group, state))
        states.confirm(state)

    # -- what must be

    def ids(self, node: Node) -> list[int]:
        topic = node.storage.broker.cluster.topic(parse_kafka(TOPIC))
        return [topic.partition(number).partition_id for number in range(PARTITIONS)]

    def check_coverage(self, events: Counter[str]) -> None:
        """After a whole life: the groups have committed offsets."""
        assert self.positions.latest

    def check(self, node: Node) -> None:
        """Every recovered value is one of its possible states."""
        broker = node.storage.broker
        numbers = {each: number for number, each in enumerate(self.ids(node))}
        self.positions.check_recovered(
            {
                (group, numbers[each]): position.mark
                for group in broker.committed_offsets.names(Protocol.KAFKA)
                for each, position in broker.committed_offsets.positions(
                    Protocol.KAFKA, group
                ).items()
            }
        )
        for group, states in self.kinds.items():
            record = broker.groups.records.get(group)
            states.check_recovered(None if record is None else record.type)
        self.quotas.check_recovered(dict(broker.quotas))
        for all_nodes, states in self.values.items():
            states.check_recovered(dict(broker.values.overrides(all_nodes=all_nodes)))
        for group, states in self.group_values.items():
            states.check_recovered(dict(broker.group_values.overrides(group)))
