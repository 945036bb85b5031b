"""The durable positions of share groups, by group and partition.

A position is a mark and done ranges above it, as that of a subscription (position.py), and has the
delivery counts of records that were given back (share_facts.py). Each change is a fact in the
journal of the node that serves the partition:

    started    the position begins at an offset, or begins again there, from nothing
    acked      records are done, or were given back with their delivery counts
    deleted

Memory moves at once, in the order of the facts, because the next member may acquire what another
one released; who answers a client waits until the facts are durable. What a crash takes back was
never answered: such records are delivered again. Acquired records are not stored: after a restart
they are free, with the count before.

Positions follow the start of their partitions, without a fact, since the start is known again after
a crash. Where a salvaged log ends before a mark the mark moves down, which is a fact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

from trilogue.broker.cursors.cursor_facts import Ranges
from trilogue.broker.cursors.position_store import Fact, PositionStore
from trilogue.broker.cursors.share_facts import (
    NOTHING_BELOW,
    RANGES_IN_FACT,
    ShareAckFact,
    SharePosition,
    UnackedRange,
    decode_acked,
    decode_removal,
    decode_snapshot,
    decode_started,
    encode_acked,
    encode_removal,
    encode_snapshot,
    encode_started,
    share_key,
    snapshot_key,
)
from trilogue.broker.cursors.subscription_cursors import Bounds
from trilogue.broker.errors import TooManyPositions
from trilogue.broker.facts import FactJournal, FactKind, Protocol, SnapshotRow
from trilogue.broker.promise import Promise

KAFKA = Protocol.KAFKA
POSITIONS_MAX = 100_000
RANGES_KEPT = 100_000  # of one position in a snapshot


class SharePositions:
    """All positions of share groups on this node."""

    def __init__(
        self,
        partition_exists: Callable[[int], bool],
        bounds: Callable[[int], Bounds | None],
        count_max: int = POSITIONS_MAX,
    ) -> None:
        self._store: PositionStore[SharePosition] = PositionStore(
            partition_exists,
            row_key=snapshot_key,
            encode_row=lambda _, position: encode_snapshot(position, RANGES_KEPT),
        )
        self._bounds = bounds
        self._count_max = count_max
        # Called with a group that has positions of other partitions now.
        self.on_change: Callable[[str], None] = lambda _: None

    def attach(self, journal: FactJournal) -> None:
        """Begin to write facts: the log has recovered, so positions can be compared with it."""
        self._store.attach(journal)
        self._fit(list(self._store))

    def adopt(self, partition_ids: Container[int]) -> None:
        """Compare the positions of partitions with their logs, which were opened now."""
        self._fit([each for each in self._store if each.key.partition_id in partition_ids])

    def _fit(self, positions: Iterable[SharePosition]) -> None:
        for position in positions:
            log = self._bounds(position.key.partition_id)
            if log is not None and position.mark > log.high_watermark:
                self.start(position.key.name, position.key.partition_id, log.high_watermark)

    # -- lookups

    def __len__(self) -> int:
        return len(self._store)

    def of_group(self, group: str) -> Mapping[int, SharePosition]:
        """Return the positions of a group by partition id; a view, not to be kept."""
        return self._store.of_name(KAFKA, group)

    def find_position(self, group: str, partition_id: int) -> SharePosition | None:
        """Return a position if there is one."""
        return self._store.get(KAFKA, group, partition_id)

    # -- changes

    def start(self, group: str, partition_id: int, mark: int) -> SharePosition:
        """Let a position begin at an offset, also where there is one; TooManyPositions."""
        found = self.find_position(group, partition_id)
        if found is None and len(self._store) >= self._count_max:
            raise TooManyPositions(f"share groups have {self._count_max} positions")
        key = share_key(partition_id, group)
        self._store.add_fact(FactKind.SHARE_STARTED, encode_started(key, mark))
        position = self._apply_start(SharePosition(key, mark))
        if found is None:
            self.on_change(group)
        return position

    def write(
        self, position: SharePosition, done: Ranges, released: Sequence[UnackedRange]
    ) -> None:
        """Move a position: some offsets are done, others were given back; the fact follows.

        It returns at once; a caller that has to answer waits for the journal's `on_commit`.
        """
        if position.gone:
            return
        key = position.key
        left_done, left_released = list(done), list(released)
        while left_done or left_released:
            some = left_done[:RANGES_IN_FACT]
            back = left_released[: RANGES_IN_FACT - len(some)]
            fact = ShareAckFact(key, NOTHING_BELOW, some, back)
            self._store.add_fact(FactKind.SHARE_ACKED, encode_acked(fact))
            self._apply_ack(position, fact)
            del left_done[: len(some)], left_released[: len(back)]

    def skip(self, position: SharePosition, start: int, end: int) -> None:
        """Pass over offsets without a record to deliver; no fact: the next reader sees it again."""
        if position.ack(start, end):
            position.forget_deliveries(((start, end),))
            self._store.mark_dirty(position.key)

    def follow_start(self, position: SharePosition) -> bool:
        """Move a mark below the partition's start up to it; whether it moved."""
        log = self._bounds(position.key.partition_id)
        if log is None or position.mark >= log.start_offset:
            return False
        self.skip(position, position.mark, log.start_offset)
        return True

    def remove(self, group: str, partition_ids: Collection[int] | None = None) -> Promise[None]:
        """Remove positions of a group, all without ids; kept when that is durable."""
        ids = [*self.of_group(group)] if partition_ids is None else partition_ids
        facts = [
            Fact(FactKind.SHARE_DELETED, encode_removal(share_key(each, group)))
            for each in ids
            if self.find_position(group, each) is not None
        ]
        durable = self._store.write(facts)
        self._drop(self._store.remove(KAFKA, group, list(ids)))
        self.on_change(group)
        return durable

    def drop(self, partition_ids: Collection[int]) -> None:
        """Remove the positions of partitions that were deleted."""
        gone = self._store.drop(partition_ids)
        self._drop(gone)
        for group in {each.key.name for each in gone}:
            self.on_change(group)

    def close(self, partition_ids: Container[int]) -> None:
        """Change the positions of partitions no more; the next snapshot has them as they are."""
        self._drop([each for each in self._store if each.key.partition_id in partition_ids])

    def release(self, gives_partition: Callable[[int], bool]) -> None:
        """Remove the positions of partitions that another node has now."""
        self._store.release(lambda _protocol, _name, each: gives_partition(each))

    # -- the flush cut and the start

    def snapshot(self) -> list[SnapshotRow]:
        """Return the rows that changed since the last call."""
        return self._store.snapshot()

    def load(self, payload: bytes) -> None:
        """Take over a snapshot row; CorruptLog."""
        position = decode_snapshot(payload)
        self._store.load(position.key, position)

    def replay(self, kind: int, payload: bytes) -> None:
        """Take over a fact of the journal; CorruptLog."""
        if kind == FactKind.SHARE_STARTED:
            self._apply_start(decode_started(payload))
        elif kind == FactKind.SHARE_DELETED:
            key = decode_removal(payload)
            self._store.remove(KAFKA, key.name, (key.partition_id,))
        else:
            fact = decode_acked(payload)
            position = self._store.get(*fact.key)
            if position is not None:
                self._apply_ack(position, fact)

    # -- inside

    def _apply_start(self, fresh: SharePosition) -> SharePosition:
        position = self._store.get(*fresh.key)
        if position is None:
            position = fresh
            self._store.put(KAFKA, fresh.key.name, ((fresh.key.partition_id, fresh),))
        else:
            position.reset(fresh.mark)
            self._store.mark_dirty(fresh.key)
        return position

    def _apply_ack(self, position: SharePosition, fact: ShareAckFact) -> None:
        position.ack_until(fact.until)
        for start, end in fact.done:
            position.ack(start, end)
        position.count_deliveries(fact.released)
        position.forget_deliveries(fact.done)
        self._store.mark_dirty(fact.key)

    @staticmethod
    def _drop(positions: list[SharePosition]) -> None:
        for position in positions:
            position.gone = True
