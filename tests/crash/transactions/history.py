"""What transactions did and what readers saw, and the anomalies in it.

Workers record each transaction: the messages that it wrote, those that it read before its end, the
input that it acked, and how it ended. A transaction whose commit got no answer may have ended
either way, but not halfway.
Readers record what they got, in order. The names of the anomalies are those of Adya's thesis and of
Jepsen's tests of Kafka.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple, TypeAlias

EXAMPLES = 5

TransactionName: TypeAlias = str


class Outcome(Enum):
    """How a transaction ended, as its worker knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Write(NamedTuple):
    """One message of a transaction: its number within it is in its value."""

    transaction: TransactionName
    number: int
    partition: int


class Seen(NamedTuple):
    """A message as a reader got it."""

    partition: int
    offset: int
    write: Write


@dataclass
class Transaction:
    """One transaction of one worker."""

    name: TransactionName
    writes: list[Write] = field(default_factory=list)
    reads: list[Seen] = field(default_factory=list)
    acks: list[int] = field(default_factory=list)
    outcome: Outcome = Outcome.UNKNOWN


@dataclass
class History:
    """All transactions of a run, and what each reader got; `final` is a read of everything.

    `inputs` are the numbers of messages that transactions may ack, `left` those that are not
    acked at the end.
    """

    transactions: dict[TransactionName, Transaction] = field(default_factory=dict)
    readers: dict[str, list[Seen]] = field(default_factory=dict)
    final: list[Seen] = field(default_factory=list)
    inputs: range = range(0)
    left: set[int] = field(default_factory=set)

    def begin(self, name: TransactionName) -> Transaction:
        """Add a transaction."""
        made = self.transactions[name] = Transaction(name)
        return made

    def anomalies(self) -> dict[str, list[object]]:
        """Return examples of each kind of anomaly; empty where there is none."""
        found: dict[str, list[object]] = defaultdict(list)
        for kind, example in self._find():
            if len(found[kind]) < EXAMPLES:
                found[kind].append(example)
        return dict(found)

    def summary(self) -> str:
        """Return the counts of outcomes and of messages, for a report."""
        outcomes = Counter(each.outcome.value for each in self.transactions.values())
        counts = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
        return f"{len(self.transactions)} transactions ({counts}), {len(self.final)} messages read"

    def _find(self) -> Iterator[tuple[str, object]]:
        yield from self._wrong_messages()
        yield from self._torn_and_lost()
        yield from self._order()
        yield from self._skips()
        yield from self._reads_of_own()
        yield from self._cycles()
        yield from self._acks()

    def _everything_seen(self) -> Iterator[tuple[str, Seen]]:
        for seen in self.final:
            yield "final", seen
        for name, reads in self.readers.items():
            for seen in reads:
                yield name, seen
        for transaction in self.transactions.values():
            for seen in transaction.reads:
                yield transaction.name, seen

    def _wrong_messages(self) -> Iterator[tuple[str, object]]:
        """Messages of aborted transactions (G1a), never sent or twice; two for one offset."""
        known = {write for each in self.transactions.values() for write in each.writes}
        at: dict[tuple[int, int], Write] = {}
        for reader, seen in self._everything_seen():
            if seen.write not in known or seen.write.partition != seen.partition:
                yield "never sent", (reader, seen)
                continue
            if self.transactions[seen.write.transaction].outcome is Outcome.ABORTED:
                yield "aborted read", (reader, seen)
            if at.setdefault((seen.partition, seen.offset), seen.write) != seen.write:
                yield "inconsistent offset", (reader, seen)
        for write, count in Counter(seen.write for seen in self.final).items():
            if count > 1:
                yield "duplicate", (write, count)

    def _torn_and_lost(self) -> Iterator[tuple[str, object]]:
        present = {seen.write for seen in self.final}
        for each in self.transactions.values():
            missing = [write for write in each.writes if write not in present]
            if not missing:
                continue
            if len(missing) < len(each.writes):
                yield "torn", (each.name, missing)
            elif each.outcome is Outcome.COMMITTED:
                yield "lost", each.name

    def _acks(self) -> Iterator[tuple[str, object]]:
        """An input is acked exactly where the messages of a transaction that acked it are there."""
        present = {seen.write.transaction for seen in self.final}
        owners: dict[int, list[TransactionName]] = defaultdict(list)
        for each in self.transactions.values():
            if each.name in present:
                for number in each.acks:
                    owners[number].append(each.name)
        for number in self.inputs:
            names = owners[number]
            if len(names) > 1:
                yield "acked twice", (number, names)
            if names and number in self.left:
                yield "lost ack", (number, names)
            if not names and number not in self.left:
                yield "ack alone", number

    def _order(self) -> Iterator[tuple[str, object]]:
        """Messages of one transaction are in the order of their writing in each partition."""
        newest: dict[tuple[TransactionName, int], int] = {}
        for seen in self.final:
            key = (seen.write.transaction, seen.partition)
            if newest.get(key, -1) >= seen.write.number:
                yield "reordered", seen
            newest[key] = seen.write.number

    def _skips(self) -> Iterator[tuple[str, object]]:
        """A reader gets all committed messages between its first and its last one, in order."""
        final = {part: [each.offset for each in seen] for part, seen in _split(self.final).items()}
        for reader, reads in self.readers.items():
            for partition, seen in _split(reads).items():
                offsets = [each.offset for each in seen]
                if any(one >= other for one, other in pairwise(offsets)):
                    yield "went back", (reader, partition)
                    continue
                first, last = offsets[0], offsets[-1]
                wanted = [each for each in final.get(partition, []) if first <= each <= last]
                skipped = sorted(set(wanted) - set(offsets))
                if skipped:
                    yield "poll skip", (reader, partition, skipped[:EXAMPLES])

    def _reads_of_own(self) -> Iterator[tuple[str, object]]:
        for each in self.transactions.values():
            for seen in each.reads:
                if seen.write.transaction == each.name:
                    yield "own read", (each.name, seen)

    def _cycles(self) -> Iterator[tuple[str, object]]:
        """Transactions that have read from each other (G1c), by edges from writers to readers."""
        edges: dict[TransactionName, set[TransactionName]] = defaultdict(set)
        for each in self.transactions.values():
            for seen in each.reads:
                if seen.write.transaction != each.name:
                    edges[seen.write.transaction].add(each.name)
        cycle = find_cycle(edges)
        if cycle:
            yield "cycle", cycle


def _split(seen: Iterable[Seen]) -> dict[int, list[Seen]]:
    """Return the messages of each partition."""
    found: dict[int, list[Seen]] = defaultdict(list)
    for each in seen:
        found[each.partition].append(each)
    return found


def find_cycle(edges: Mapping[str, set[str]]) -> list[str]:
    """Return the nodes of one cycle; empty where there is none."""
    state: dict[str, int] = {}  # 1: on the path, 2: without a cycle
    for start in list(edges):
        path: list[tuple[str, Iterator[str]]] = []
        if start not in state:
            state[start] = 1
            path.append((start, iter(edges.get(start, ()))))
        while path:
            node, successors = path[-1]
            for successor in successors:
                if state.get(successor) == 1:
                    names = [name for name, _ in path]
                    return names[names.index(successor) :]
                if successor not in state:
                    state[successor] = 1
                    path.append((successor, iter(edges.get(successor, ()))))
                    break
            else:
                state[node] = 2
                path.pop()
    return []
