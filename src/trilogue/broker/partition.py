"""One partition: its log, the producers that write to it, the topic settings that matter here.

`append` is the hot path. Its order is the order of the promises: size first (nothing is read of
what is too large), then the bytes (checksum, format), then who writes (a repeated batch appends
nothing), then the topic's time, then the log. All of it works on the header; no record is touched,
unless the topic's settings ask for more (intake.py).

`append_entry` takes what is in another protocol's format and was checked by who built the entry:
there the order is who may write at all, who writes what again, time, log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from trilogue.broker.errors import (
    BrokerError,
    NotServed,
    PolicyViolation,
    StaleEpoch,
    TooLarge,
    TopicTerminated,
    UnknownEpoch,
    UnknownTopic,
    failure,
)
from trilogue.broker.hot import HotPartition
from trilogue.broker.intake import Prepared, check_time, prepare, refusal, wants
from trilogue.broker.policies import BROKER_POLICIES, Policies
from trilogue.broker.producers import PartitionProducers
from trilogue.broker.sequences import NO_SEQUENCE, Stamp
from trilogue.broker.settings import TopicSettings
from trilogue.entry.entry import TRANSACTIONAL, EntryError, EntryHeader
from trilogue.entry.kafka_batch import check_produced, read_header, set_log_append_time
from trilogue.entry.pulsar_batch import PULSAR_SECTION_AT, producer_key
from trilogue.log.errors import LogError
from trilogue.log.partition_log import PartitionLog

_tuple_new: Final = tuple.__new__


class Appended(NamedTuple):
    """Where a batch stands. It is not durable before the journal says so, repeated or not.

    Of a `patient` topic it is acknowledged all the same; its readers wait. Where a repeated entry
    of a producer known by name stands is not remembered: its base offset is -1.
    """

    base_offset: int
    log_append_time_ms: int  # -1 when the topic keeps its producers' times
    duplicate: bool
    patient: bool = False


class Partition(HotPartition):
    """A partition that this node owns."""

    __slots__ = (
        "_deleted",
        "_policies",
        "_terminated",
        "message_size_max",
        "patient",
        "producers",
        "settings",
        "stamps",
    )

    def __init__(
        self, log: PartitionLog, producers: PartitionProducers, settings: TopicSettings
    ) -> None:
        self.log = log
        self.producers = producers
        self._deleted = False
        self._terminated = False
        self._policies = BROKER_POLICIES
        self.obey(settings)

    def obey(self, settings: TopicSettings) -> None:
        """Take over what the topic's settings are from here on; `policies` go beside them."""
        self.settings = settings
        self.message_size_max = settings.message_size_max
        self.stamps = settings.log_append_time
        self.prepares = wants(settings)
        self.patient = self.log.patient = settings.patient
        self._review()

    def _review(self) -> None:
        """Find out up to which size a batch needs no more than to be sound: -1 = none does."""
        policies = self._policies
        self._simple_size_max = self.message_size_max
        if policies.max_message_size > 0:
            self._simple_size_max = min(self.message_size_max, policies.max_message_size)
        asks_more = self.prepares or self.stamps or self.patient or policies.encryption_required
        if asks_more or self._deleted or self._terminated:
            self._simple_size_max = -1

    @property
    def deleted(self) -> bool:
        """Whether its topic is gone."""
        return self._deleted

    @deleted.setter
    def deleted(self, deleted: bool) -> None:
        self._deleted = deleted
        self._review()

    @property
    def terminated(self) -> bool:
        """Whether it takes no more messages, and what is in it is all there is."""
        return self._terminated

    @terminated.setter
    def terminated(self, terminated: bool) -> None:
        self._terminated = terminated
        self._review()

    @property
    def policies(self) -> Policies:
        """What Pulsar's policies for the topic say."""
        return self._policies

    @policies.setter
    def policies(self, policies: Policies) -> None:
        self._policies = policies
        self._review()

    @property
    def partition_id(self) -> int:
        """The id that names this partition for ever, on disk and to Pulsar."""
        return self.log.partition_id

    @property
    def owner_epoch(self) -> int:
        """Which incarnation of which owner this is."""
        return self.log.owner_epoch

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client that knows another owner than us; -1 = it does not say."""
        if epoch < 0 or epoch == self.log.owner_epoch:
            return
        if epoch < self.log.owner_epoch:
            raise StaleEpoch(f"epoch {epoch} is over, it is {self.log.owner_epoch}")
        raise UnknownEpoch(f"epoch {epoch} is not known here yet, it is {self.log.owner_epoch}")

    def append(
        self, records: memoryview, *, now_ms: int, prepared: Prepared | None = None
    ) -> Appended:
        """Append one batch as a producer sent it, or say which one it repeats, or refuse it.

        Where the topic `prepares`, that may take long: who has done it elsewhere (intake.py) hands
        in what came of it.
        """
        if prepared is None and (self.prepares or len(records) > self.message_size_max):
            prepared = prepare(records, self.settings, now_ms=now_ms)  # refuses what is too large
        if prepared is not None:
            records, header = prepared
        else:
            try:
                header = check_produced(records)
            except EntryError as error:
                raise refusal(error, records) from error
        if self._deleted or self._terminated or header.attributes & TRANSACTIONAL:
            raise self._closed()
        self._check_policies(len(records), encrypted=False)
        idempotent = header.producer_id >= 0
        if idempotent:
            repeated = self.producers.check(header)
            if repeated is not None:
                return Appended(repeated.base_offset, repeated.append_time_ms, True, self.patient)
        append_time_ms = -1
        if self.stamps:
            records, header = _stamped(records, now_ms)
            append_time_ms = now_ms
        try:
            base_offset = self.log.append(records, header)
        except LogError as error:
            raise failure(error) from error
        if idempotent:
            durable_end = self.log.high_watermark if self.patient else None
            self.producers.write(header, base_offset, append_time_ms, now_ms, durable_end)
        return Appended(base_offset, append_time_ms, False, self.patient)

    def append_sent(self, records: memoryview, clock: Callable[[], int]) -> Appended:
        """Do what `append` does, at once where it is simple: most batches, most topics."""
        if len(records) > self._simple_size_max:
            return self.append(records, now_ms=clock())
        try:
            header = check_produced(records)
        except EntryError as error:
            raise refusal(error, records) from error
        if header.producer_id >= 0 or header.attributes & TRANSACTIONAL:
            return self.append(records, now_ms=clock(), prepared=Prepared(records, header))
        try:
            return _tuple_new(Appended, (self.log.append(records, header), -1, False, False))
        except LogError as error:
            raise failure(error) from error

    def append_entry(
        self,
        entry: memoryview,
        header: EntryHeader,
        *,
        now_ms: int,
        sequence: Stamp | None = None,
        size: int | None = None,
        encrypted: bool = True,
    ) -> Appended:
        """Append an entry of another format than Kafka's, which was checked when it was built.

        `sequence` is what it says of its producer; where the topic's policy says so, what that
        producer has written already is not written again. A compacted topic takes messages without
        a key: they stay. A writable entry gets the broker's time in place. `size` is how long it
        was when its producer sent it; without it the entry is Pulsar's. `encrypted`: it is, or
        whether it has to be was looked at before.
        """
        if self._deleted or self._terminated or header.attributes & TRANSACTIONAL:
            raise self._closed()
        if self.prepares:
            check_time(header, self.settings, now_ms)
        if size is None:
            size = len(entry) - PULSAR_SECTION_AT
        self._check_policies(size, encrypted=encrypted)
        named = sequence if self.policies.deduplication else None
        sequences = self.producers.sequences
        if named is not None and sequences.repeats(self.log.partition_id, named):
            return Appended(-1, -1, True, self.patient)
        append_time_ms = -1
        if self.stamps:
            entry, header = _stamped(entry, now_ms)
            append_time_ms = now_ms
        log = self.log
        try:
            base_offset = log.append(entry, header)
        except LogError as error:
            raise failure(error) from error
        if named is not None and header.record_count:  # none in a chunk that is not the last
            sequences.write(log.partition_id, named, base_offset, now_ms, log.high_watermark)
        return Appended(base_offset, append_time_ms, False, self.patient)

    def _check_policies(self, size: int, *, encrypted: bool = True) -> None:
        """Refuse what Pulsar's policies for the topic forbid, whoever writes it."""
        policies = self._policies
        if 0 < policies.max_message_size < size:
            raise TooLarge(f"{size} bytes, the topic takes {policies.max_message_size}")
        if policies.encryption_required and not encrypted:
            raise PolicyViolation("the topic takes encrypted messages only")

    @property
    def formats(self) -> int:
        """Which formats entries in memory may have: bit 1 << Format for each."""
        return self.log.tail_formats

    def last_sequence_id(self, producer_name: str) -> int:
        """Return the highest sequence id that a producer has written here, or -1.

        It is true when the journal says that everything added so far is durable.
        """
        if not self.policies.deduplication:
            return NO_SEQUENCE
        return self.producers.sequences.last(self.log.partition_id, producer_key(producer_name))

    def _closed(self) -> BrokerError:
        if self.deleted:
            return UnknownTopic("the topic was deleted")
        if self.terminated:
            return TopicTerminated("the topic was terminated")
        return NotServed("transactions are not served")


def _stamped(records: memoryview, now_ms: int) -> tuple[memoryview, EntryHeader]:
    copy = bytearray(records) if records.readonly else records
    set_log_append_time(copy, now_ms)
    return memoryview(copy), read_header(copy)
