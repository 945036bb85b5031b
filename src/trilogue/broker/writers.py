"""Who writes to a partition under which name, and who has it to itself.

    asked for                somebody is there        nobody is there
    SHARED                   beside shared ones       at once
                             busy, if one has it
    EXCLUSIVE                fenced                   takes it, with a new epoch
    EXCLUSIVE_WITH_FENCING   all others are sent off  takes it, with a new epoch
    WAIT_FOR_EXCLUSIVE       waits in a line          takes it, with a new epoch

An epoch is a number of the partition that grows whenever somebody takes it for himself. It is in
meta, so it survives restarts. A writer that reconnects names the epoch it had: if another one came
in between it is fenced for good.

A name is held by one writer of a partition at a time. A newer incarnation of the same writer takes
the name from the older one: a reconnect of a name that we gave, or the same producer of the same
connection, with a higher number.

`admit` decides at once. What has to be durable before a writer is let in, the epoch, it leaves to
the caller: `plan_epoch` is a commit like any other slow fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, unique

from trilogue.broker.commit import Commit
from trilogue.broker.errors import BrokerError, NotReady, ProducerBusy, ProducerFenced
from trilogue.broker.topic import Topic
from trilogue.meta.port import DeleteSetting, Op, PartitionExists, PutSetting

EPOCH_KEY = "writers/"  # of meta's settings, with the partition id behind it
NO_EPOCH = -1
WAITING_MAX = 1_000  # in the line of one partition


def epoch_key(partition_id: int) -> str:
    """Where the epoch of a partition stands in meta; it goes with the topic."""
    return f"{EPOCH_KEY}{partition_id}"


@unique
class Access(Enum):
    """How a writer wants the partition."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


@unique
class Admission(Enum):
    """What `admit` said."""

    LET_IN = "let in"
    TAKES = "takes"  # when its epoch is recorded
    WAITS = "waits"  # until `promoted` is called


class Writer:
    """One writer, as others have to respect it. Gateways derive from it."""

    def __init__(
        self,
        name: str,
        *,
        access: Access = Access.SHARED,
        incarnation: int = 0,
        generated: bool = False,
        epoch: int = NO_EPOCH,
        session: object = None,
        number: int = 0,
    ) -> None:
        self.name = name
        self.access = access
        self.incarnation = incarnation  # grows when the same writer comes again
        self.generated = generated  # whether the name is one that we gave
        self.epoch = epoch  # of the partition, as the writer knows it; NO_EPOCH: it does not say
        self.session = session  # the connection it is on, compared by identity
        self.number = number  # which writer of that connection

    def fenced(self) -> None:
        """Another took the partition, or this name: it must not write any more."""

    def replaced(self) -> None:
        """A newer incarnation of the same writer has its name now."""

    def promoted(self) -> None:
        """The wait is over: the partition is this writer's once its epoch is recorded."""

    def refused(self, problem: Exception) -> None:
        """The wait is over, for nothing."""

    def replaces(self, other: Writer) -> bool:
        """Whether this is a newer incarnation of the other."""
        if self.incarnation <= other.incarnation:
            return False
        if self.generated and other.generated:
            return True
        return self.session is other.session and self.number == other.number


class PartitionWriters:
    """The writers of one partition."""

    __slots__ = ("_by_name", "_exclusive", "_waiting", "epoch", "partition_id")

    def __init__(self, partition_id: int, epoch: int) -> None:
        self.partition_id = partition_id
        self.epoch = epoch  # NO_EPOCH: nobody ever had it for himself
        self._by_name: dict[str, Writer] = {}
        self._exclusive: Writer | None = None
        self._waiting: list[Writer] = []

    def __iter__(self) -> Iterator[Writer]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Writer | None:
        """The writer that holds a name."""
        return self._by_name.get(name)

    def has(self, name: str) -> bool:
        """Whether a writer of this name is there or waits."""
        return name in self._by_name or any(each.name == name for each in self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether nobody is there and nobody waits."""
        return not self._by_name and not self._waiting

    @property
    def waiting(self) -> int:
        """How many wait to have the partition to themselves."""
        return len(self._waiting)

    @property
    def exclusive(self) -> Writer | None:
        """Who has the partition to himself."""
        return self._exclusive

    def admit(self, writer: Writer, *, most: int = 0) -> Admission:
        """Let a writer in, or make it wait; ProducerBusy or ProducerFenced.

        `most` is how many there may be, 0 for any number.
        """
        older = self._by_name.get(writer.name)
        if older is not None and not writer.replaces(older):
            raise ProducerBusy(f"a producer with the name {writer.name!r} is connected")
        held = older is not None and older is self._exclusive
        if older is not None:
            self.leave(older, promote=False)
            older.replaced()
        try:
            return self._admit(writer, most, held=held)
        except BrokerError:
            self._promote()  # the one it replaced is gone all the same
            raise

    def _admit(self, writer: Writer, most: int, *, held: bool) -> Admission:
        """Decide; `held`: the writer is a newer incarnation of who had the partition."""
        access, taken = writer.access, bool(self._by_name or self._waiting)
        if access is Access.SHARED:
            if self._exclusive is not None or self._waiting:
                raise ProducerBusy("another producer has the topic to itself, or waits for that")
            if 0 < most <= len(self._by_name):
                raise ProducerBusy(f"the topic has {most} producers, as many as it may have")
            self._by_name[writer.name] = writer
            return Admission.LET_IN
        self._check_epoch(writer)
        if taken and not held and access is not Access.EXCLUSIVE_WITH_FENCING:
            if access is Access.EXCLUSIVE:
                raise ProducerFenced("the topic has other producers")
            if len(self._waiting) >= WAITING_MAX:
                raise ProducerBusy(f"{WAITING_MAX} producers wait for the topic already")
            self._waiting.append(writer)
            return Admission.WAITS
        if access is Access.EXCLUSIVE_WITH_FENCING:
            self.expel(ProducerFenced("another producer took the topic for itself"))
        self._take(writer)
        return Admission.TAKES

    def leave(self, writer: Writer, *, promote: bool = True) -> None:
        """Forget a writer; the next one in the line has its turn."""
        if writer in self._waiting:
            self._waiting.remove(writer)
        if self._by_name.get(writer.name) is writer:
            del self._by_name[writer.name]
        if self._exclusive is writer:
            self._exclusive = None
        if promote:
            self._promote()

    def _promote(self) -> None:
        """Let the next one in the line have its turn, if there is room for it."""
        while not self._by_name and self._waiting:
            following = self._waiting.pop(0)
            try:
                self._check_epoch(following)
            except ProducerFenced as problem:
                following.refused(problem)
            else:
                self._take(following)
                following.promoted()

    def expel(self, problem: Exception) -> None:
        """Send everybody off, also those who wait."""
        waiting, self._waiting = self._waiting, []
        present = list(self._by_name.values())
        self._by_name.clear()
        self._exclusive = None
        for writer in waiting:
            writer.refused(problem)
        for writer in present:
            writer.fenced()

    def next_epoch(self, writer: Writer) -> int:
        """The epoch a writer that takes the partition gets: its own again, or the next one.

        Nobody has one that was not given yet: whoever says so gets the next one as well.
        """
        return self.epoch if writer.epoch == self.epoch > NO_EPOCH else self.epoch + 1

    def plan_epoch(self, writer: Writer) -> Commit[int]:
        """Decide the epoch of a writer that takes the partition; after that it is let in."""
        epoch = self.next_epoch(writer)

        def apply() -> int:
            self.epoch = max(self.epoch, epoch)
            writer.epoch = epoch
            return epoch

        return Commit(
            lambda: [PutSetting(epoch_key(self.partition_id), str(epoch))],
            (PartitionExists(self.partition_id),),
            apply,
            outrun=NotReady("the topic was deleted"),
        )

    def _take(self, writer: Writer) -> None:
        self._exclusive = writer
        self._by_name[writer.name] = writer

    def _check_epoch(self, writer: Writer) -> None:
        if NO_EPOCH < writer.epoch < self.epoch:
            raise ProducerFenced(
                f"the epoch of the topic is {self.epoch}, the producer's was {writer.epoch}"
            )


class Writers:
    """The writers of all partitions of a node. Nothing is kept for partitions without any."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings  # meta's, as they are durable
        self._partitions: dict[int, PartitionWriters] = {}

    def of(self, partition_id: int) -> PartitionWriters:
        """The writers of one partition."""
        found = self._partitions.get(partition_id)
        if found is None:
            epoch = int(self._settings.get(epoch_key(partition_id), NO_EPOCH))
            found = self._partitions[partition_id] = PartitionWriters(partition_id, epoch)
        return found

    def __iter__(self) -> Iterator[PartitionWriters]:
        return iter(list(self._partitions.values()))

    def find(self, partition_id: int) -> PartitionWriters | None:
        """The writers of a partition that has, or had, some."""
        return self._partitions.get(partition_id)

    def leaves(self, topic: Topic) -> list[Op]:
        """What of meta goes with a topic: the epochs of its partitions."""
        keys = (epoch_key(each) for each in topic.row.partitions)
        return [DeleteSetting(key) for key in keys if key in self._settings]

    def tidy(self, partition_id: int) -> None:
        """Forget a partition whose writers are gone; meta knows its epoch."""
        found = self._partitions.get(partition_id)
        if found is not None and found.is_idle:
            key = epoch_key(partition_id)
            if found.epoch == int(self._settings.get(key, NO_EPOCH)):
                del self._partitions[partition_id]

    def drop(self, partition_id: int, problem: Exception) -> None:
        """The partition is gone: so are its writers."""
        found = self._partitions.pop(partition_id, None)
        if found is not None:
            found.expel(problem)
