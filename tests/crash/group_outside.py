"""Groups, quotas and settings around a node in a `World`: committed, removed, remembered, said.

What goes through the journal (positions and their removal, what is remembered of groups) is there
up to some moment after the last one that was told to be durable, and nothing of later; what goes
through meta one by one is there as it was told, or as the last change that was not answered yet
wanted it. `check` holds a node that has just started against that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

from tests.crash.outside import durable, make_topic

from trilogue.broker.any_group import CLASSIC, CONSUMER
from trilogue.broker.errors import UnknownGroup
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.names import parse_kafka
from trilogue.broker.promise import Promise
from trilogue.broker.quotas import Bound, Who
from trilogue.broker.settings import Change
from trilogue.node.node import Node

TOPIC, PARTITIONS = "t", 3
GROUPS = ("a", "b", "c")
CLIENTS = ("x", "y", "")

Positions = Mapping[tuple[str, int], int]  # by group and partition


def changed(key: str, said: str | None) -> list[tuple[str, Change, str | None]]:
    """One setting that is said, or taken back."""
    return [(key, Change.RESET if said is None else Change.SET, said)]


class Told:
    """What is known of one thing: as it was told, and what else it may be by now."""

    def __init__(self, value: Any) -> None:
        self.states: list[Any] = [value]
        """As it was told, then each state that was wanted since."""

    @property
    def wanted(self) -> Any:
        return self.states[-1]

    def wants(self, value: Any) -> int:
        self.states.append(value)
        return len(self.states)

    def is_told(self, value: Any) -> None:
        """This state is durable, so no earlier one is possible any more."""
        at = max(at for at, each in enumerate(self.states) if each is value)
        del self.states[:at]

    def finds(self, value: Any) -> None:
        """A start has found it so."""
        assert value in self.states, (value, self.states)
        self.states = [value]


class GroupOutside:
    """Everybody but the node. `script` is what they do in one life, from where they were."""

    def __init__(self, acts: int = 120) -> None:
        self.acts = acts
        self.done = 0
        self.is_made = False
        self.positions = Told({})
        self.kinds = {group: Told(None) for group in GROUPS}  # None: nothing is remembered
        self.quotas = Told({})
        self.values = {all_nodes: Told({}) for all_nodes in (False, True)}
        self.group_values = {group: Told({}) for group in GROUPS}

    async def script(self, node: Node) -> None:
        """Find what was promised, and go on."""
        if node.storage.broker.cluster.find(parse_kafka(TOPIC)) is None:
            assert not self.is_made, "the topic is gone"
            await make_topic(node, TOPIC, PARTITIONS, {})
        self.is_made = True
        self.check(node)
        while self.done < self.acts:
            self.done += 1
            await self.act(node, Random(self.done))
        await durable(node)
        await asyncio.sleep(20)
        self.check(node)

    async def act(self, node: Node, chance: Random) -> None:
        for _ in range(3):
            chance.choice((self.commit, self.commit, self.commit, self.remove, self.delete))(
                node, chance
            )
        self.live(node, chance)
        if self.done % 3 == 0:
            await durable(node)  # what came before in the journal, too
            for told in self.kinds.values():
                told.is_told(told.wanted)
        if self.done % 4 == 0:
            await chance.choice((self.set_quota, self.set_value, self.set_group_value))(
                node, chance
            )
        if self.done % 7 == 0:
            await asyncio.sleep(1.0)

    # -- through the journal

    def hear(self, promise: Promise[None], state: Positions) -> None:
        def told(kept: Promise[None]) -> None:
            if kept.error is None:
                self.positions.is_told(state)

        promise.then(told)

    def commit(self, node: Node, chance: Random) -> None:
        group, numbers = chance.choice(GROUPS), chance.sample(range(PARTITIONS), 2)
        state = {**self.positions.wanted, **{(group, each): self.done for each in numbers}}
        self.positions.wants(state)
        moves = [CursorMove(self.ids(node)[each], self.done) for each in numbers]
        self.hear(node.storage.broker.commit(Protocol.KAFKA, group, moves), state)

    def remove(self, node: Node, chance: Random) -> None:
        """OffsetDelete."""
        group, number = chance.choice(GROUPS), chance.randrange(PARTITIONS)
        before = self.positions.wanted
        state = {place: at for place, at in before.items() if place != (group, number)}
        self.positions.wants(state)
        ids = [self.ids(node)[number]]
        self.hear(node.storage.broker.group_admin.remove(group, ids), state)

    def delete(self, node: Node, chance: Random) -> None:
        """DeleteGroups."""
        group = chance.choice(GROUPS)
        try:
            promise = node.storage.broker.group_admin.delete(group)
        except UnknownGroup:
            return
        state = {place: at for place, at in self.positions.wanted.items() if place[0] != group}
        self.positions.wants(state)
        self.kinds[group].wants(None)
        self.hear(promise, state)

    def live(self, node: Node, chance: Random) -> None:
        """A group gets its first member, or loses its last one: nobody is told that it is kept."""
        group, kind = chance.choice(GROUPS), chance.choice((CLASSIC, CONSUMER))
        records = node.storage.broker.groups.records
        happens = records.occupied if chance.random() < 0.5 else records.emptied
        happens(group, kind, "consumer")
        self.kinds[group].wants(kind)

    # -- through meta

    async def set_quota(self, node: Node, chance: Random) -> None:
        who = Who(client=chance.choice(CLIENTS))
        rate = chance.choice((None, float(self.done)))
        state = {one: at for one, at in self.quotas.wanted.items() if one != who}
        if rate is not None:
            state[who] = {Bound.PRODUCED: rate}
        self.quotas.wants(state)
        plan = node.storage.broker.quotas.plan_alter([(who, {Bound.PRODUCED: rate})])
        await node.commits.carry_out(plan)
        self.quotas.is_told(state)

    async def set_value(self, node: Node, chance: Random) -> None:
        all_nodes = chance.random() < 0.5
        values, told = node.storage.broker.values, self.values[all_nodes]
        key = chance.choice(("log.retention.bytes", "log.retention.ms"))
        said = chance.choice((None, f"{self.done}000"))
        state = values.check(changed(key, said), all_nodes=all_nodes, anew=False)
        told.wants(state)
        await node.commits.carry_out(values.plan_alter(state, all_nodes=all_nodes))
        told.is_told(state)

    async def set_group_value(self, node: Node, chance: Random) -> None:
        group = chance.choice(GROUPS)
        values, told = node.storage.broker.group_values, self.group_values[group]
        said = chance.choice((None, f"{50_000 - self.done}"))
        state = values.check(group, changed("consumer.session.timeout.ms", said), anew=False)
        told.wants(state)
        await node.commits.carry_out(values.plan_alter(group, state))
        told.is_told(state)

    # -- what must be

    def ids(self, node: Node) -> list[int]:
        topic = node.storage.broker.cluster.topic(parse_kafka(TOPIC))
        return [topic.partition(number).partition_id for number in range(PARTITIONS)]

    def check(self, node: Node) -> None:
        """All that was told is so, and nothing is so that nobody wanted."""
        broker = node.storage.broker
        numbers = {each: number for number, each in enumerate(self.ids(node))}
        self.positions.finds(
            {
                (group, numbers[each]): position.offset
                for group in broker.cursors.names(Protocol.KAFKA)
                for each, position in broker.cursors.positions(Protocol.KAFKA, group).items()
            }
        )
        for group, told in self.kinds.items():
            record = broker.groups.records.get(group)
            told.finds(None if record is None else record.type)
        self.quotas.finds(dict(broker.quotas))
        for all_nodes, told in self.values.items():
            told.finds(dict(broker.values.said(all_nodes=all_nodes)))
        for group, told in self.group_values.items():
            told.finds(dict(broker.group_values.said(group)))
