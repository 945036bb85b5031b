"""A cluster in simulation: the real decisions and rules, a virtual clock, a fake PostgreSQL.

Real are `ControlPlane`, `LeaseWatch`, `choose_lease`, the plans of slots and the rules of metadata
(`apply_change`, with its fence). A statement of the fake database is one step; its answer comes
later, or never. Processes are killed, frozen, slow, stopped and started, the database goes away,
an operator's wishes come and get lost. Each violation raises `Violation`.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
from collections.abc import Callable, Generator
from typing import Any, Final

from msgspec.structs import replace

from trilogue.meta.errors import Fenced
from trilogue.meta.leases import GONE_PART, RECOVERY_HOME, RELEASED, SPREAD, Lease, LeaseWatch
from trilogue.meta.operations import BeginEpoch, Fence, GiveSlots, Op, SetFlushedThrough
from trilogue.meta.state import MetaState, apply_change
from trilogue.node.cluster.control_plane import ClusterView, ControlPlane, slots_to_give
from trilogue.node.cluster.place import ClusterPlace, SharedPlace
from trilogue.node.cluster.waiting import LOOKS, choose_lease
from trilogue.node.storage import NodePlace
from trilogue.node.supervisor.slot_plans import spread_over

LEASE_S: Final = 3.0
SPREAD_S: Final = 3.0
LOOK_S: Final = 0.25
FAULTS_S: Final = 60.0  # how long there are faults
CALM_S: Final = 60.0  # after which every slot has an owner that serves it

UNFENCED: Final = "a window without a fence"
UNREAD: Final = "rows that are not read"
UNFLUSHED: Final = "slots given before the flush"
MISTAKES: Final = (UNFENCED, UNREAD, UNFLUSHED)

Task = Generator[Any, Any, Any]
Row = tuple[int, int, int, str]  # sequence, slot, offset, value


class Violation(Exception):
    """Something that must never happen."""


class Away(Exception):
    """The database is away, or its answer was lost."""


class Database:
    """The rows of a cluster. Each method is one transaction."""

    def __init__(self, nodes: int, slots: int, mistake: str) -> None:
        self.mistake = mistake
        self.state = MetaState.new(b"c" * 16, 1, 0)
        self.state.slots = {
            slot: replace(self.state.slots[0], node_id=slot % nodes + 1) for slot in range(slots)
        }
        begin = [BeginEpoch(node_id) for node_id in range(2, nodes + 1)]
        apply_change(self.state, begin)
        self.epochs: dict[int, int] = {}  # of journals
        self.windows: dict[int, dict[int, Row]] = {}  # node -> sequence -> row
        self.flushed: dict[int, int] = {}
        self.segments: dict[int, dict[int, str]] = {slot: {} for slot in range(slots)}
        self.leases: dict[int, Lease] = {}
        self.moves: dict[int, int] = {}
        self.owner_changes = 0

    def change(self, node_id: int, epoch: int | None, ops: list[Op]) -> None:
        """Apply a change as a node, with its fence."""
        self.state.node_id = node_id
        apply_change(self.state, ops, (), None if epoch is None else Fence(node_id, epoch))

    def begin_journal(self, node_id: int, after: int, renewals: int | None, home: bytes) -> int:
        if self.epochs.get(node_id, 0) != after:
            raise Fenced("started elsewhere")
        lease = self.leases.get(node_id)
        if lease is not None and renewals not in {None, lease.renewals}:
            raise Fenced("renewed")
        self.epochs[node_id] = after + 1
        self.leases[node_id] = Lease(node_id, after + 1, 0, home)
        return after + 1

    def begin_meta(self, node_id: int) -> int:
        self.change(node_id, None, [BeginEpoch(node_id)])
        return self.state.nodes[node_id].epoch

    def read_rows(self, node_id: int) -> tuple[dict[int, dict[int, str]], int]:
        """Return what is stored of the node's slots, and the last sequence."""
        logs = {
            slot: dict(self.segments[slot])
            for slot, row in self.state.slots.items()
            if row.node_id == node_id
        }
        last = through = self.flushed.get(node_id, 0)
        for sequence, (_, slot, offset, value) in sorted(self.windows.get(node_id, {}).items()):
            if sequence > through and slot in logs and self.mistake != UNREAD:
                logs[slot][offset] = value
            last = max(last, sequence)
        return logs, last

    def insert(self, node_id: int, epoch: int, row: Row) -> None:
        if self.epochs[node_id] != epoch and self.mistake != UNFENCED:
            raise Fenced("taken over")
        self.windows.setdefault(node_id, {}).setdefault(row[0], row)

    def flush(self, node_id: int, epoch: int, sequence: int, logs: dict[int, Any]) -> None:
        through = max(sequence, self.flushed.get(node_id, 0))
        self.state.node_id = node_id
        self.change(node_id, epoch, [SetFlushedThrough(through)])
        self.flushed[node_id] = through
        for slot, log in logs.items():
            self.segments[slot].update(log)

    def give(self, node_id: int, epoch: int, owners: dict[int, int]) -> None:
        self.change(node_id, epoch, [GiveSlots(owners)])
        self.owner_changes += len(owners)

    def renew(self, node_id: int, epoch: int, renewals: int | None = None) -> None:
        lease = self.leases[node_id]
        if lease.epoch != epoch:
            raise Fenced("taken over")
        self.leases[node_id] = replace(lease, renewals=renewals or lease.renewals + 1)

    def remove_moves(self, moves: list[tuple[int, int]]) -> None:
        for slot, to in moves:
            if self.moves.get(slot) == to:
                del self.moves[slot]

    def owners(self) -> dict[int, int]:
        return {slot: row.node_id for slot, row in self.state.slots.items()}


class Process:
    """One process: its tasks run while it lives and is not frozen."""

    def __init__(self, world: World, number: int, home: bytes, node_id: int, **place: Any) -> None:
        self.world, self.number, self.home, self.node_id = world, number, home, node_id
        self.place = place
        self.lives = True
        self.frozen_until = 0.0
        self.hidden_until = 0.0  # its connection for presence is lost
        self.helper: Process | None = None
        self.generation = 0  # of its start: tasks of an earlier one have ended
        self.serves = False
        self.logs: dict[int, dict[int, str]] = {}
        self.epoch = self.meta_epoch = self.sequence = 0
        self.lease_ends = 0.0
        self.stops = False

    def end(self) -> None:
        self.lives = self.serves = False
        if self.helper is not None:
            self.helper.end()

    def db(self, call: Callable[..., Any], *values: Any) -> Task:
        """Run a statement; Away if it did not happen, or its answer was lost."""
        world = self.world
        yield world.random.uniform(0.0005, 0.01) * world.slowness
        if world.now < world.away_until:
            raise Away
        result = call(*values)
        yield world.random.uniform(0.0005, 0.01) * world.slowness
        if world.random.random() < world.lost_answers:
            raise Away
        return result

    def again(self, call: Callable[..., Any], *values: Any) -> Task:
        """Run a statement that may be repeated until it is answered."""
        while True:
            try:
                return (yield from self.db(call, *values))
            except Away:
                yield 0.2

    # -- a process

    def main(self) -> Task:
        while True:
            lease = yield from self.wait_for_lease()
            try:
                yield from self.start(lease.epoch, lease.renewals)
            except (Fenced, Away):
                yield 0.5
                continue
            return

    def wait_for_lease(self) -> Task:
        shared = SharedPlace(LEASE_S, is_standby=bool(self.place.get("standby")))
        place = NodePlace(self.node_id, cluster=ClusterPlace("", (), shared))
        watch = LeaseWatch(LEASE_S, self.clock, LEASE_S * GONE_PART)
        while True:
            asked_s = self.world.now
            try:
                present = yield from self.db(self.world.present)
                rows = yield from self.db(lambda: list(self.world.database.leases.values()))
            except Away:
                watch.reset()
                yield 0.5
                continue
            found = choose_lease(place, rows, watch.over(rows, self.home, asked_s, present))
            if found is not None:
                self.node_id = found.node_id
                return found
            yield LEASE_S / LOOKS

    def clock(self) -> float:
        return self.world.now

    def start(self, after: int, renewals: int | None) -> Task:
        """Begin the epochs, read the rows, serve. Fenced, Away."""
        database = self.world.database
        began = self.world.now
        self.epoch = yield from self.db(
            database.begin_journal, self.node_id, after, renewals, self.home
        )
        self.lease_ends = began + LEASE_S
        self.meta_epoch = yield from self.again(database.begin_meta, self.node_id)
        self.logs, self.sequence = yield from self.again(database.read_rows, self.node_id)
        self.generation += 1
        self.serves = True
        for slot, log in self.logs.items():
            self.world.check_complete(slot, log, self)
        for task in (self.renew, self.append, self.flush_often, self.watch):
            if self.place.get("recovers") is None or task == self.renew:
                self.world.spawn(self, task(), self.generation)

    # -- a node that serves

    def renew(self) -> Task:
        renewed = self.lease_ends - LEASE_S
        while True:
            began = self.world.now
            try:
                yield from self.db(self.world.database.renew, self.node_id, self.epoch)
                self.lease_ends = began + LEASE_S
                renewed = began
                yield LEASE_S / 4
            except Fenced:
                self.end()
                return
            except Away:
                self.lease_ends = min(self.lease_ends, renewed + LEASE_S * GONE_PART)
                yield 0.2

    def append(self) -> Task:
        world = self.world
        while True:
            yield world.random.uniform(0.1, 0.6)
            if not self.serves or not self.logs:
                continue
            slot = world.random.choice(sorted(self.logs))
            if world.now < self.lease_ends:
                world.check_complete(slot, self.logs[slot], self)
            offset = len(self.logs[slot])
            row = (self.sequence + 1, slot, offset, f"{self.number}/{next(world.values)}")
            try:
                yield from self.again(world.database.insert, self.node_id, self.epoch, row)
            except Fenced:
                self.end()
                return
            self.sequence += 1
            self.logs[slot][offset] = row[3]
            world.acknowledge(slot, offset, row[3])

    def flush_often(self) -> Task:
        while True:
            yield self.world.random.uniform(2.0, 8.0)
            if self.serves:
                yield from self.flush()

    def flush(self) -> Task:
        database = self.world.database
        logs = {slot: dict(log) for slot, log in self.logs.items()}
        try:
            yield from self.again(
                database.flush, self.node_id, self.meta_epoch, self.sequence, logs
            )
        except Fenced:
            self.end()

    def watch(self) -> Task:
        database = self.world.database
        plane = ControlPlane(self.node_id, LEASE_S, SPREAD_S, self.clock)
        read_s, leases, present = 0.0, [], frozenset()
        while True:
            asked_s = self.clock()
            try:
                owners = yield from self.db(database.owners)
                moves = yield from self.db(lambda: dict(database.moves))
                if plane.needs_leases(asked_s, moves):
                    read_s, present, leases = yield from self.read_leases(asked_s)
            except Away:
                plane.reset()
                yield LOOK_S
                continue
            yield from self.adopt([s for s in owners if owners[s] == self.node_id])
            served = [slot for slot in self.logs if owners[slot] == self.node_id]
            decision = plane.decide(ClusterView(read_s, leases, moves, owners, served, present))
            if decision.dead is not None and (self.helper is None or not self.helper.lives):
                self.recover(decision.dead, sorted(decision.alive))
            database.remove_moves(decision.finished)
            if decision.given:
                if database.mistake != UNFLUSHED:
                    yield from self.flush()
                wanted = dict(database.moves)
                still = slots_to_give(self.node_id, wanted, served, decision.alive)
                given = {slot: to for slot, to in still.items() if slot in decision.given}
                if given:
                    self.begin_again(given)
                    return
            yield LOOK_S

    def adopt(self, owned: list[int]) -> Task:
        """Serve slots that others gave, from what they have flushed, as adoption.py does it."""
        gained = [slot for slot in owned if slot not in self.logs]
        segments = self.world.database.segments
        try:
            found = {}
            if gained:
                found = yield from self.db(lambda: {each: dict(segments[each]) for each in gained})
        except Away:  # the real one starts again
            return
        for slot, log in found.items():
            self.logs[slot] = log
            if self.world.now < self.lease_ends:
                self.world.check_complete(slot, log, self)

    def read_leases(self, asked_s: float) -> Task:
        present = yield from self.db(self.world.present)
        leases = yield from self.db(lambda: list(self.world.database.leases.values()))
        return asked_s, present, leases

    def begin_again(self, given: dict[int, int]) -> None:
        """End, give slots away, and start again in this process, as hand_over.py does it."""
        self.serves = False
        self.generation += 1
        self.world.spawn(self, self.start_again(given))

    def start_again(self, given: dict[int, int]) -> Task:
        database = self.world.database
        yield self.world.random.uniform(0.1, 0.5)
        if given:
            if database.mistake != UNFLUSHED:
                yield from self.flush()
            with contextlib.suppress(Fenced, Away):  # the next start reads the owners
                yield from self.db(database.give, self.node_id, self.meta_epoch, given)
        try:
            yield from self.start(self.epoch, None)
        except (Away, Fenced):
            yield from self.main()

    def stop(self) -> Task:
        """End in order."""
        self.serves = False
        self.generation += 1
        yield from self.flush()
        with contextlib.suppress(Fenced, Away):
            renew = self.world.database.renew
            yield from self.db(renew, self.node_id, self.epoch, RELEASED)
        self.end()

    # -- the recovery of another node

    def recover(self, lease: Lease, alive: list[int]) -> None:
        self.world.check_dead(lease.node_id)
        helper = Process(
            self.world, next(self.world.numbers), RECOVERY_HOME, lease.node_id, recovers=alive
        )
        self.helper = helper
        self.world.spawn(helper, helper.spread(lease))

    def spread(self, lease: Lease) -> Task:
        """Serve as a dead node without listeners, and give its slots away."""
        database = self.world.database
        with contextlib.suppress(Fenced, Away):  # the lease runs out, and it is tried again
            yield from self.start(lease.epoch, lease.renewals)
            owners = database.owners()
            given = spread_over(
                [owners[slot] for slot in range(len(owners))], self.node_id, self.place["recovers"]
            )
            yield self.world.random.uniform(0.2, 3.0)
            if database.mistake != UNFLUSHED:
                yield from self.flush()
            yield from self.db(database.give, self.node_id, self.meta_epoch, given)
            yield from self.db(database.renew, self.node_id, self.epoch, SPREAD)
        self.end()


class World:
    """The clock, the processes, the faults, and what must hold."""

    def __init__(self, seed: int, nodes: int = 4, slots: int = 8, mistake: str = "") -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.away_until = 0.0
        self.slowness = self.random.choice((1.0, 1.0, 20.0))
        self.lost_answers = self.random.choice((0.0, 0.02))
        self.database = Database(nodes, slots, mistake)
        self.nodes = nodes
        self.acked: dict[tuple[int, int], str] = {}
        self.counts = dict.fromkeys(range(slots), 0)  # acknowledged offsets end here
        self.values, self.numbers = itertools.count(), itertools.count()
        self.processes: list[Process] = []
        self._order = itertools.count()
        self._heap: list[tuple[float, int, Process, Task, int | None]] = []
        for node_id in range(1, nodes + 1):
            self.launch(node_id, b"home %d" % node_id)

    def launch(self, node_id: int, home: bytes, **place: Any) -> None:
        process = Process(self, next(self.numbers), home, node_id, **place)
        self.processes.append(process)
        self.spawn(process, process.main())

    def spawn(self, process: Process, task: Task, generation: int | None = None) -> None:
        heapq.heappush(self._heap, (self.now, next(self._order), process, task, generation))

    def run(self, until: float) -> None:
        while self._heap and self._heap[0][0] <= until:
            at, _, process, task, generation = heapq.heappop(self._heap)
            self.now = max(self.now, at)
            if not process.lives or generation not in {None, process.generation}:
                continue
            if self.now < process.frozen_until:
                place = (process.frozen_until, next(self._order), process, task, generation)
                heapq.heappush(self._heap, place)
                continue
            try:
                delay = next(task)
            except StopIteration:
                continue
            place = (self.now + delay, next(self._order), process, task, generation)
            heapq.heappush(self._heap, place)
        self.now = until

    def play(self) -> None:
        """Play the faults, then a calm time, and check the end."""
        self.run(5.0)
        while self.now < FAULTS_S:
            self.run(self.now + self.random.uniform(0.2, 6.0))
            self.fail()
        self.run(self.now + 2 * LEASE_S)
        for node_id in range(1, self.nodes + 2):  # those that were stopped come back
            if self.database.leases.get(node_id, Lease(0, 0, 0, b"")).renewals == RELEASED:
                self.launch(node_id, b"back %d" % node_id)
        if not any(each.lives for each in self.processes):
            self.launch(1, b"last")
        self.lost_answers, self.slowness = 0.0, 1.0
        self.run(self.now + CALM_S)
        self.check_end()

    def free_home(self, home: bytes) -> bytes:
        """Return a directory for a process: by chance the one of another that has ended."""
        is_free = not any(each.lives and each.home == home for each in self.processes)
        is_kept = is_free and self.random.random() < 0.5
        return home if is_kept else b"new %d" % next(self.numbers)

    def fail(self) -> None:
        """Play one fault."""
        faults = (
            self.kill,
            self.freeze,
            self.part,
            self.stop,
            self.start,
            self.move,
            self.lose,
            self.hide,
        )
        fault = self.random.choices(faults, (4, 3, 2, 2, 2, 3, 1, 2))[0]
        fault(self.random.choice(self.processes))

    def kill(self, process: Process) -> None:
        process.end()
        if self.random.random() < 0.5:
            self.launch(process.node_id, self.free_home(process.home))

    def freeze(self, process: Process) -> None:
        process.frozen_until = self.now + self.random.uniform(0.5, 12.0)
        process.hidden_until = 0.0  # the connection of a process that stands still stays open
        if process.helper is not None and self.random.random() < 0.5:
            process.helper.frozen_until = process.frozen_until

    def hide(self, process: Process) -> None:
        """PostgreSQL ends the connection for presence of a process that runs."""
        if process.frozen_until < self.now:
            process.hidden_until = self.now + self.random.uniform(0.2, 12.0)

    def present(self) -> frozenset[bytes]:
        """Return the homes of the processes that are connected."""
        return frozenset(
            each.home
            for each in self.processes
            if each.lives and each.epoch and each.hidden_until <= self.now
        )

    def part(self, _process: Process) -> None:
        self.away_until = self.now + self.random.uniform(0.2, 8.0)

    def stop(self, process: Process) -> None:
        if process.lives and process.serves:
            self.spawn(process, process.stop())

    def start(self, _process: Process) -> None:
        home = b"new %d" % next(self.numbers)
        node_id = self.random.randint(1, self.nodes + 1)
        self.launch(node_id, home, standby=self.random.random() < 0.5)

    def move(self, _process: Process) -> None:
        state = self.database.state
        for slot in self.random.sample(sorted(state.slots), 2):
            self.database.moves[slot] = self.random.choice(sorted(state.nodes))

    def lose(self, _process: Process) -> None:
        """An operator's wish gets lost."""
        if self.database.moves:
            del self.database.moves[self.random.choice(sorted(self.database.moves))]

    # -- what must hold

    def acknowledge(self, slot: int, offset: int, value: str) -> None:
        if self.acked.setdefault((slot, offset), value) != value:
            raise Violation(f"offset {offset} of slot {slot} was acknowledged twice")
        self.counts[slot] = max(self.counts[slot], offset + 1)

    def check_complete(self, slot: int, log: dict[int, str], process: Process) -> None:
        for offset in range(self.counts[slot]):
            acked = self.acked.get((slot, offset))
            if acked is not None and log.get(offset) != acked:
                what = f"node {process.node_id} serves slot {slot} without {offset}"
                raise Violation(f"process {process.number} as {what}")

    def check_dead(self, node_id: int) -> None:
        """Nobody spreads the slots of a node that was well for the whole time."""
        for each in self.processes:
            well = each.lives and each.serves and each.node_id == node_id
            if well and each.frozen_until + 2 * LEASE_S < self.now and not self._was_away():
                raise Violation(f"node {node_id} is alive, and its slots are spread")

    def _was_away(self) -> bool:
        return self.now < self.away_until + 2 * LEASE_S or self.lost_answers > 0

    def check_end(self) -> None:
        database = self.database
        for slot, row in database.state.slots.items():
            serving = [
                each
                for each in self.processes
                if each.lives
                and each.serves
                and slot in each.logs
                and each.node_id == row.node_id
                and database.epochs[each.node_id] == each.epoch
            ]
            if len(serving) != 1:
                raise Violation(f"slot {slot} of node {row.node_id} is served by {len(serving)}")
            self.check_complete(slot, serving[0].logs[slot], serving[0])
