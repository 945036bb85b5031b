"""All transactional ids: in memory, in facts of the journal, and in rows of the flush cut.

The coordinator decides and writes facts here. What a snapshot has follows when the journal has
committed them; at the start, snapshot rows and later facts bring the same state back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from trilogue.broker.creators import CreatorCounts
from trilogue.broker.errors import StorageFailed, TooManyTransactions, convert_log_error
from trilogue.broker.facts import TRANSACTION_KEY, FactJournal, FactKind, SnapshotRow
from trilogue.broker.transactions.pending_acks import PendingAcks
from trilogue.broker.transactions.records import (
    TransactionContent,
    decode_forgotten,
    decode_grew,
    decode_offsets,
    decode_pending_ack,
    decode_saved,
    encode_saved,
)
from trilogue.broker.transactions.transaction import Transaction, VersionedContents, count_positions
from trilogue.log.errors import LogError

NO_CONTENT = TransactionContent()
PARTS_OF_LARGE: Final = 50


class TransactionTable:
    """The transactions by transactional id, by producer id and by group."""

    def __init__(self) -> None:
        self.pending_acks = PendingAcks()
        self.creators = CreatorCounts()
        # Called with an id whose state changes, or with None: it was removed.
        self.on_change: Callable[[str, Transaction | None], None] = lambda _, __: None
        self._journal: FactJournal
        self._transactions: dict[str, Transaction] = {}
        self._by_group: dict[str, dict[str, None]] = {}  # ids whose transactions have the group
        self._dirty: dict[str, None] = {}
        self._by_producer: dict[int, str] = {}  # the id that has, or had, a producer id
        self.part_count = 0  # of all transactions that are open

    def attach(self, journal: FactJournal) -> None:
        """Write to this journal from now on."""
        self._journal = journal

    # -- queries

    def __len__(self) -> int:
        return len(self._transactions)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(list(self._transactions.values()))

    def find_by_id(self, transactional_id: str) -> Transaction | None:
        """Return the state of an id, or None."""
        return self._transactions.get(transactional_id)

    def find_by_producer(self, producer_id: int) -> Transaction | None:
        """Return the state of the id that has this producer id, or None."""
        found = self._transactions.get(self._by_producer.get(producer_id, ""))
        return None if found is None or found.row.producer_id != producer_id else found

    def is_ending(self, has_name: Callable[[str], bool] = lambda _: True) -> bool:
        """Whether a decision of some of these ids is on its way to other nodes, or to the disk."""
        return any(each.ending is not None and has_name(each.row.transactional_id) for each in self)

    def is_large(self, transactional_id: str) -> bool:
        """Whether the end of an id's transaction writes to so many parts that it takes long."""
        found = self.find_by_id(transactional_id)
        return found is not None and found.contained.part_count > PARTS_OF_LARGE

    def check_room(self, creator: str, most: int) -> None:
        """Raise TooManyTransactions unless a principal ("": no name) may create one more id."""
        if len(self) >= most:
            raise TooManyTransactions(f"there may be {most} transactional ids")
        free = most - len(self)
        if not self.creators.has_room(creator, free):
            raise TooManyTransactions(
                f"{creator} has {self.creators.count(creator)} transactional ids, {free} are free"
            )

    def check_parts(self, count: int, most: int) -> None:
        """Raise TooManyTransactions unless open transactions may have so many more parts."""
        if self.part_count + count > most:
            raise TooManyTransactions(f"open transactions have up to {most} parts together")

    def pending_positions(self, group: str) -> set[int]:
        """Return the partitions whose positions of a group transactions may still move."""
        found: set[int] = set()
        for name in self._by_group.get(group, ()):
            found.update(self._transactions[name].contained.moved_ids.get(group, ()))
        return found

    # -- changes

    def add(self, transaction: Transaction) -> None:
        """Add an id."""
        name = transaction.row.transactional_id
        self._transactions[name] = transaction
        self._by_producer[transaction.row.producer_id] = name

    def add_producer(self, producer_id: int, name: str) -> None:
        """Note that an id goes on with another producer id."""
        self._by_producer[producer_id] = name

    def remove(self, name: str) -> None:
        """Remove an id, also from the next snapshot."""
        self._drop(name)
        self.on_change(name, None)
        self._dirty[name] = None

    def join_groups(self, name: str, groups: Iterable[str]) -> None:
        """Note that the transaction of an id may move positions of these groups."""
        for group in groups:
            self._by_group.setdefault(group, {})[name] = None

    def clear(self, transaction: Transaction) -> None:
        """Forget what a transaction contains: it has ended."""
        self.part_count -= transaction.contained.part_count
        transaction.contained = VersionedContents()

    def release(self, gives_name: Callable[[str], bool]) -> list[str]:
        """Forget the ids that another node coordinates now; their rows stay. Return them."""
        released = list(filter(gives_name, self._transactions))
        for name in released:
            self._drop(name)
        return released

    def _drop(self, name: str) -> None:
        self.leave_groups(name)
        self.pending_acks.release(name, committed=False)
        found = self._transactions.pop(name, None)
        self.creators.remove(name)
        if found is not None:
            self.part_count -= found.contained.part_count
            self._by_producer.pop(found.row.producer_id, None)

    def leave_groups(self, name: str) -> None:
        """Note that the transaction of an id has ended."""
        found = self._transactions.get(name)
        for group in () if found is None else found.contained.groups:
            names = self._by_group.get(group, {})
            names.pop(name, None)
            if not names:
                self._by_group.pop(group, None)

    # -- the journal

    def add_fact(self, kind: FactKind, payload: bytes) -> None:
        """Write a fact; raises BrokerError."""
        try:
            self._journal.add_fact(kind, payload)
        except LogError as error:
            raise convert_log_error(error) from error

    def on_commit(self, callback: Callable[[BaseException | None], None]) -> None:
        """Call when all facts so far are durable, or never will be."""
        self._journal.on_commit(callback)

    def save_when_durable(
        self,
        transaction: Transaction,
        then: Callable[[BaseException | None], None] | None = None,
    ) -> None:
        """Move the durable state to this one when the journal has committed."""
        row, contained, change = transaction.row, transaction.contained, transaction.changes
        self.on_change(row.transactional_id, transaction)

        def committed(problem: BaseException | None) -> None:
            if problem is None:
                transaction.saved(row, contained, change)
                self._dirty[row.transactional_id] = None
            if then is not None:
                then(None if problem is None else StorageFailed(str(problem)))

        self._journal.on_commit(committed)

    # -- the flush cut and the start

    def snapshot(self) -> list[SnapshotRow]:
        """Return the rows that changed since the last call, as far as they are durable."""
        dirty, self._dirty = self._dirty, {}
        rows = []
        for name in dirty:
            key = TRANSACTION_KEY + name.encode()
            transaction = self._transactions.get(name)
            if transaction is None:
                rows.append(SnapshotRow(key, None))
            elif transaction.durable is not None:
                content = transaction.durable_content()
                rows.append(SnapshotRow(key, encode_saved(transaction.durable, content)))
        return rows

    def load(self, payload: bytes) -> None:
        """Take over a snapshot row."""
        row, content = decode_saved(payload)
        transaction = Transaction(row)
        transaction.contained.restore(content)
        self.part_count += transaction.contained.part_count
        transaction.durable = row
        name = row.transactional_id
        self._transactions[name] = transaction
        self._by_producer[row.producer_id] = name
        for each in content.acks:
            self.pending_acks.add(name, each)
        self.join_groups(name, content.groups)

    def replay(self, kind: int, payload: bytes) -> None:
        """Take over a fact found in the journal at start."""
        if kind == FactKind.TRANSACTION_SAVED:
            row, content = decode_saved(payload)
            name = row.transactional_id
            found = self._transactions.get(name)
            if found is not None and row.state.is_ending and content == NO_CONTENT:
                found.row = found.durable = row
            else:
                self._drop(name)
                self.load(payload)
        elif kind == FactKind.TRANSACTION_FORGOTTEN:
            name = decode_forgotten(payload)
            self._drop(name)
        elif kind == FactKind.TRANSACTION_ACKED:
            name, ack = decode_pending_ack(payload)
            self._transactions[name].contained.acks.restore((ack,))
            self.pending_acks.add(name, ack)
        elif kind == FactKind.TRANSACTION_GREW:
            name, changed_ms, ids, groups = decode_grew(payload)
            grown = self._transactions[name]
            grown.begin(changed_ms)
            before = grown.contained.part_count
            grown.contained.restore(TransactionContent(ids, groups))
            self.part_count += grown.contained.part_count - before
            self.join_groups(name, groups)
            grown.row = grown.durable = grown.row._replace(changed_ms=changed_ms)
            grown.durable_contained = grown.contained
        else:
            name, moves = decode_offsets(payload)
            self._transactions[name].contained.add_offsets(0, moves)
            self.part_count += count_positions(moves)
        self._dirty[name] = None
