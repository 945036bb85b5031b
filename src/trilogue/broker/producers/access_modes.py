"""Producers of a partition by name, and exclusive access to it (PIP-68).

    access mode              the partition has producers       it has none
    SHARED                   admitted beside shared ones,      admitted
                             busy if one is exclusive
    EXCLUSIVE                fenced                            exclusive, with a new epoch
    EXCLUSIVE_WITH_FENCING   all others are fenced; exclusive  exclusive, with a new epoch
    WAIT_FOR_EXCLUSIVE       waits in a queue                  exclusive, with a new epoch

The topic epoch of a partition grows whenever a producer gets exclusive access. It is in meta, so it
survives restarts. A producer that reconnects sends the epoch it had: if another producer had
exclusive access in between, it is fenced for good.

One producer of a partition holds a name at a time. A newer incarnation of the same producer takes
the name over: a reconnect under a name that the broker generated, or the same producer of the same
connection, with a higher number.

`admit` decides at once. Exclusive access begins when the epoch is durable: the caller carries out
the change that `plan_epoch` returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, unique

from trilogue.broker.errors import BrokerError, NotReady, ProducerBusy, ProducerFenced
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.topics.topic import Topic
from trilogue.meta.operations import DeleteSetting, Op, PartitionExists, PutSetting

EPOCH_KEY = "writers/"  # of meta's settings, with the partition id behind it
NO_EPOCH = -1
WAITING_MAX = 1_000  # in the line of one partition


def epoch_key(partition_id: int) -> str:
    """Return the key of a partition's topic epoch in meta; deleted with the topic."""
    return f"{EPOCH_KEY}{partition_id}"


@unique
class AccessMode(Enum):
    """The access that a producer requests."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"
    WAIT_FOR_EXCLUSIVE = "wait for exclusive"
    EXCLUSIVE_WITH_FENCING = "exclusive with fencing"


@unique
class Admission(Enum):
    """The result of `admit`."""

    ADMITTED = "admitted"
    EXCLUSIVE = "exclusive"  # when its epoch is recorded
    WAITING = "waiting"  # until `on_promoted` is called


class Writer:
    """A producer of a partition. Gateways derive from it."""

    def __init__(
        self,
        name: str,
        *,
        access: AccessMode = AccessMode.SHARED,
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
        self.epoch = epoch  # the epoch that the producer sent, or NO_EPOCH
        self.session = session  # the connection it is on, compared by identity
        self.number = number  # which writer of that connection

    def on_fenced(self) -> None:
        """The partition, or this name, belongs to another producer: stop writing."""

    def on_replaced(self) -> None:
        """A newer incarnation of the same producer has its name now."""

    def on_promoted(self) -> None:
        """The wait is over: access is exclusive once its epoch is recorded."""

    def on_refused(self, problem: Exception) -> None:
        """The wait is over without access."""

    def replaces(self, other: Writer) -> bool:
        """Whether this is a newer incarnation of the other producer."""
        if self.incarnation <= other.incarnation:
            return False
        if self.generated and other.generated:
            return True
        return self.session is other.session and self.number == other.number


class PartitionWriters:
    """The producers of one partition."""

    __slots__ = ("_by_name", "_exclusive", "_waiting", "epoch", "partition_id")

    def __init__(self, partition_id: int, epoch: int) -> None:
        self.partition_id = partition_id
        self.epoch = epoch  # NO_EPOCH: it never had an exclusive producer
        self._by_name: dict[str, Writer] = {}
        self._exclusive: Writer | None = None
        self._waiting: list[Writer] = []

    def __iter__(self) -> Iterator[Writer]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Writer | None:
        """Return the producer that holds a name, or None."""
        return self._by_name.get(name)

    def has(self, name: str) -> bool:
        """Whether a producer of this name is admitted or waits."""
        return name in self._by_name or any(each.name == name for each in self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether no producer is admitted or waits."""
        return not self._by_name and not self._waiting

    @property
    def waiting(self) -> int:
        """The number of producers that wait for exclusive access."""
        return len(self._waiting)

    def admit(self, writer: Writer, *, most: int = 0) -> Admission:
        """Admit a producer, or let it wait; ProducerBusy or ProducerFenced.

        `most` is the largest number of producers, 0 for no limit.
        """
        older = self._by_name.get(writer.name)
        if older is not None and not writer.replaces(older):
            raise ProducerBusy(f"a producer with the name {writer.name!r} is connected")
        held = older is not None and older is self._exclusive
        if older is not None:
            self.leave(older, promote=False)
            older.on_replaced()
        try:
            return self._admit(writer, most, held=held)
        except BrokerError:
            self._promote()  # the one it replaced is gone all the same
            raise

    def _admit(self, writer: Writer, most: int, *, held: bool) -> Admission:
        """Decide; `held`: a former incarnation of the producer had exclusive access."""
        access, taken = writer.access, bool(self._by_name or self._waiting)
        if access is AccessMode.SHARED:
            if self._exclusive is not None or self._waiting:
                raise ProducerBusy("another producer has the topic to itself, or waits for that")
            if 0 < most <= len(self._by_name):
                raise ProducerBusy(f"the topic has {most} producers, as many as it may have")
            self._by_name[writer.name] = writer
            return Admission.ADMITTED
        self._check_epoch(writer)
        if taken and not held and access is not AccessMode.EXCLUSIVE_WITH_FENCING:
            if access is AccessMode.EXCLUSIVE:
                raise ProducerFenced("the topic has other producers")
            if len(self._waiting) >= WAITING_MAX:
                raise ProducerBusy(f"{WAITING_MAX} producers wait for the topic already")
            self._waiting.append(writer)
            return Admission.WAITING
        if access is AccessMode.EXCLUSIVE_WITH_FENCING:
            self.fence_all(ProducerFenced("another producer took the topic for itself"))
        self._take(writer)
        return Admission.EXCLUSIVE

    def leave(self, writer: Writer, *, promote: bool = True) -> None:
        """Remove a producer; the next one in the queue may be promoted."""
        if writer in self._waiting:
            self._waiting.remove(writer)
        if self._by_name.get(writer.name) is writer:
            del self._by_name[writer.name]
        if self._exclusive is writer:
            self._exclusive = None
        if promote:
            self._promote()

    def _promote(self) -> None:
        """Promote the next producer in the queue if no other is admitted."""
        while not self._by_name and self._waiting:
            following = self._waiting.pop(0)
            try:
                self._check_epoch(following)
            except ProducerFenced as problem:
                following.on_refused(problem)
            else:
                self._take(following)
                following.on_promoted()

    def fence_all(self, problem: Exception) -> None:
        """Fence all producers and refuse those that wait."""
        waiting, self._waiting = self._waiting, []
        present = list(self._by_name.values())
        self._by_name.clear()
        self._exclusive = None
        for writer in waiting:
            writer.on_refused(problem)
        for writer in present:
            writer.on_fenced()

    def next_epoch(self, writer: Writer) -> int:
        """Return the epoch of a producer that gets exclusive access: its own, or the next one.

        An epoch that was never assigned does not count as the producer's own.
        """
        return self.epoch if writer.epoch == self.epoch > NO_EPOCH else self.epoch + 1

    def plan_epoch(self, writer: Writer) -> MetadataChange[int]:
        """Return the change that records the epoch of an exclusive producer."""
        epoch = self.next_epoch(writer)

        def apply() -> int:
            self.epoch = max(self.epoch, epoch)
            writer.epoch = epoch
            return epoch

        return MetadataChange(
            lambda: [PutSetting(epoch_key(self.partition_id), str(epoch))],
            (PartitionExists(self.partition_id),),
            apply,
            on_conflict=NotReady("the topic was deleted"),
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
    """The producers of all partitions of a node. Partitions without producers take no room."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings  # meta's, as they are durable
        self._partitions: dict[int, PartitionWriters] = {}

    def get_or_create(self, partition_id: int) -> PartitionWriters:
        """Return the producers of one partition."""
        found = self._partitions.get(partition_id)
        if found is None:
            epoch = int(self._settings.get(epoch_key(partition_id), NO_EPOCH))
            found = self._partitions[partition_id] = PartitionWriters(partition_id, epoch)
        return found

    def __iter__(self) -> Iterator[PartitionWriters]:
        return iter(list(self._partitions.values()))

    def get(self, partition_id: int) -> PartitionWriters | None:
        """Return the producers of a partition, or None if it has none."""
        return self._partitions.get(partition_id)

    def deletion_ops(self, topic: Topic) -> list[Op]:
        """Return the operations that delete the epochs of a topic's partitions."""
        keys = (epoch_key(each) for each in topic.row.partitions)
        return [DeleteSetting(key) for key in keys if key in self._settings]

    def discard_idle(self, partition_id: int) -> None:
        """Discard a partition without producers; its epoch is in meta."""
        found = self._partitions.get(partition_id)
        if found is not None and found.is_idle:
            key = epoch_key(partition_id)
            if found.epoch == int(self._settings.get(key, NO_EPOCH)):
                del self._partitions[partition_id]

    def drop(self, partition_id: int, problem: Exception) -> None:
        """Fence the producers of a deleted partition."""
        found = self._partitions.pop(partition_id, None)
        if found is not None:
            found.fence_all(problem)
