"""One partition: its log, its producers' sequences, and the topic settings for appends.

`append` is the hot path. It checks size (a batch that is too large is not read), checksum and
format, and producer sequence (a duplicate is not appended), in this order, sets the timestamp and
appends to the log. Only the header is read; records are decoded only where the topic's settings
require it (batch_validation.py).

`append_entry` appends entries in another protocol's format, which the caller has checked and built.
It checks state and policies of the topic and deduplication, sets the timestamp and appends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from trilogue.broker.errors import (
    BrokerError,
    InternalTopicWrite,
    InvalidTransactionState,
    PolicyViolation,
    StaleEpoch,
    TooLarge,
    TopicTerminated,
    UnknownEpoch,
    UnknownTopic,
    convert_log_error,
)
from trilogue.broker.producers.deduplication import NO_SEQUENCE, Stamp
from trilogue.broker.producers.idempotence import PartitionProducers
from trilogue.broker.quotas.topic_rates import PartitionRates, update_rates
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.broker.topics.batch_validation import (
    ValidatedBatch,
    check_time,
    convert_entry_error,
    needs_validation,
    validate_batch,
)
from trilogue.broker.topics.plain_batch_appender import PlainBatchAppender
from trilogue.broker.topics.policies import DEFAULT_POLICIES, Policies
from trilogue.entry.entry import TRANSACTIONAL, EntryError, EntryHeader
from trilogue.entry.kafka.record_batch import check_produced, read_header, set_log_append_time
from trilogue.entry.pulsar.pulsar_batch import PULSAR_SECTION_AT, producer_key
from trilogue.log.errors import LogError
from trilogue.log.partition_log import PartitionLog

_tuple_new: Final = tuple.__new__


class AppendResult(NamedTuple):
    """The result of an append. The batch, also a duplicate, is durable after the journal's commit.

    A topic that acks from memory acknowledges it before, but readers wait for the commit. The
    offset of a duplicate entry of a named producer is not known: its base offset is -1.
    """

    base_offset: int
    log_append_time_ms: int  # -1 when the topic keeps the producers' timestamps
    duplicate: bool
    acks_from_memory: bool = False


class Partition:
    """A partition of which this node is the owner; remote_partition.py has those of others."""

    is_remote = False

    __slots__ = (
        "_deleted",
        "_internal",
        "_moved",
        "_policies",
        "_terminated",
        "acks_from_memory",
        "bytes_out",
        "log",
        "message_size_max",
        "needs_validation",
        "plain",
        "producers",
        "rates",
        "settings",
        "stamps",
    )

    def __init__(
        self, log: PartitionLog, producers: PartitionProducers, settings: TopicSettings
    ) -> None:
        self.log = log
        self.plain = PlainBatchAppender(log)
        self.producers = producers
        self.bytes_out = 0  # of entries sent to Kafka's and TubeMQ's clients since the start
        self._deleted = False
        self._terminated = False
        self._internal = False
        self._moved: Callable[[], BrokerError] | None = None
        self._policies = DEFAULT_POLICIES
        self.rates: PartitionRates | None = None  # None: no policy limits them
        self.apply_settings(settings)

    def apply_settings(self, settings: TopicSettings) -> None:
        """Apply changed settings of the topic; `policies` are separate."""
        self.settings = settings
        self.message_size_max = settings.message_size_max
        self.stamps = settings.log_append_time
        self.needs_validation = needs_validation(settings) and not self._internal
        self.acks_from_memory = self.log.acks_from_memory = settings.acks_from_memory
        self._update_plain_size()

    def _update_plain_size(self) -> None:
        """Set the maximum sizes for the plain append; -1 where settings exclude it."""
        policies = self._policies
        size_max = self.message_size_max
        if policies.max_message_size > 0:
            size_max = min(size_max, policies.max_message_size)
        if (
            self.needs_validation
            or self.stamps
            or policies.encryption_required
            or self.rates is not None
            or self.is_closed
        ):
            size_max = -1
        entry_size_max = -1 if policies.deduplication else size_max
        plain = self.plain
        if self.acks_from_memory:
            plain.size_max = plain.entry_size_max = -1
            plain.memory_size_max = entry_size_max
        else:
            plain.size_max, plain.entry_size_max = size_max, entry_size_max
            plain.memory_size_max = -1

    @property
    def deleted(self) -> bool:
        """Whether the topic is deleted."""
        return self._deleted

    @deleted.setter
    def deleted(self, deleted: bool) -> None:
        self._deleted = deleted
        self._update_plain_size()

    def move_away(self, refusal: Callable[[], BrokerError]) -> None:
        """Take no more messages: another node is to own it. `refusal` says which one does."""
        self._moved = refusal
        self.deleted = True

    @property
    def terminated(self) -> bool:
        """Whether the topic is terminated: it takes no more messages."""
        return self._terminated

    @terminated.setter
    def terminated(self, terminated: bool) -> None:
        self._terminated = terminated
        self._update_plain_size()

    @property
    def internal(self) -> bool:
        """Whether it is of a topic of the broker itself: clients cannot append to it."""
        return self._internal

    @internal.setter
    def internal(self, internal: bool) -> None:
        if internal != self._internal:
            self._internal = internal
            self.apply_settings(self.settings)

    @property
    def is_closed(self) -> bool:
        """Whether no client can append to it."""
        return self._deleted or self._terminated or self._internal

    @property
    def policies(self) -> Policies:
        """The Pulsar policies of the topic."""
        return self._policies

    @policies.setter
    def policies(self, policies: Policies) -> None:
        self._policies = policies
        self.rates = update_rates(
            self.rates,
            policies.publish_rate,
            policies.dispatch_rate,
            policies.subscription_dispatch_rate,
            self._published_totals,
            named=policies.named_dispatch_rates,
        )
        self._update_plain_size()

    def _published_totals(self) -> tuple[int, int]:
        return self.log.end_offset, self.log.appended_bytes

    @property
    def partition_id(self) -> int:
        """The permanent id of this partition, on disk and in Pulsar's message ids."""
        return self.log.partition_id

    @property
    def owner_epoch(self) -> int:
        """The epoch of the present owner."""
        return self.log.owner_epoch

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client with another owner epoch.

        -1 = the client sent none. Owners' epochs begin at 1: who sends 0 was not told it here.
        """
        if epoch <= 0 or epoch == self.log.owner_epoch:
            return
        if epoch < self.log.owner_epoch:
            raise StaleEpoch(f"epoch {epoch} is over, it is {self.log.owner_epoch}")
        raise UnknownEpoch(f"epoch {epoch} is not known here yet, it is {self.log.owner_epoch}")

    def append(
        self,
        records: memoryview,
        *,
        now_ms: int,
        validated: ValidatedBatch | None = None,
        in_transaction: bool = False,
    ) -> AppendResult:
        """Append one batch of a producer; for a duplicate return the first append's result.

        `in_transaction`: the coordinator has checked that a transactional batch belongs to one.
        Validation, where the topic `needs_validation`, may take long: a caller that has validated
        the batch elsewhere (batch_validation.py) passes the result. Raises `BrokerError` where the
        batch is refused.
        """
        if validated is None and (self.needs_validation or len(records) > self.message_size_max):
            validated = validate_batch(records, self.settings, now_ms=now_ms)  # raises TooLarge
        if validated is not None:
            records, header = validated
        else:
            try:
                header = check_produced(records)
            except EntryError as error:
                raise convert_entry_error(error, records) from error
        refused = 0 if in_transaction else TRANSACTIONAL
        if self.is_closed or header.attributes & refused:
            raise self.refusal()
        self._check_policies(len(records), encrypted=False)
        idempotent = header.producer_id >= 0
        if idempotent:
            repeated = self.producers.check(header)
            if repeated is not None:
                base_offset, append_time_ms = repeated.base_offset, repeated.append_time_ms
                return AppendResult(base_offset, append_time_ms, True, self.acks_from_memory)
        append_time_ms = -1
        if self.stamps:
            records, header = _set_append_time(records, now_ms)
            append_time_ms = now_ms
        try:
            base_offset = self.log.append(records, header)
        except LogError as error:
            raise convert_log_error(error) from error
        if idempotent:
            durable_end = self.log.high_watermark if self.acks_from_memory else None
            self.producers.write(header, base_offset, append_time_ms, now_ms, durable_end)
        return AppendResult(base_offset, append_time_ms, False, self.acks_from_memory)

    def append_sent(
        self,
        records: memoryview,
        clock: Callable[[], int],
        check_transaction: Callable[[int, EntryHeader], None] | None = None,
    ) -> AppendResult:
        """Append as `append` does, but faster for batches without producer id or validation.

        `check_transaction` gets the partition's id and the header of a transactional batch, and
        raises BrokerError if it does not belong to an ongoing transaction.
        """
        if len(records) > self.plain.size_max:
            return self.append(records, now_ms=clock())
        try:
            header = check_produced(records)
        except EntryError as error:
            raise convert_entry_error(error, records) from error
        if header.producer_id >= 0 or header.attributes & TRANSACTIONAL:
            in_transaction = bool(check_transaction and header.attributes & TRANSACTIONAL)
            if check_transaction is not None and in_transaction:
                check_transaction(self.log.partition_id, header)
            return self.append(
                records,
                now_ms=clock(),
                validated=ValidatedBatch(records, header),
                in_transaction=in_transaction,
            )
        try:
            return _tuple_new(AppendResult, (self.log.append(records, header), -1, False, False))
        except LogError as error:
            raise convert_log_error(error) from error

    def append_marker(self, marker: bytes, now_ms: int) -> None:
        """Append the marker that ends a producer's transaction here; raises LogError."""
        header = read_header(marker)
        self.log.append(memoryview(marker), header)
        self.producers.mark(header, now_ms)

    def append_entry(
        self,
        entry: memoryview,
        header: EntryHeader,
        *,
        now_ms: int,
        sequence: Stamp | None = None,
        size: int | None = None,
        encrypted: bool = True,
        in_transaction: bool = False,
    ) -> AppendResult:
        """Append an entry of another format than Kafka's, which was checked when it was built.

        `sequence` has the producer and its sequence ids; with the deduplication policy a duplicate
        is not appended. A compacted topic accepts messages without a key and retains them. With log
        append time a writable entry is changed in place. `size` is the length in bytes as the
        producer sent it; without it the entry is Pulsar's. `encrypted` is True for an encrypted
        entry, and where the caller has checked the encryption policy. `in_transaction` is as for
        `append`.
        """
        refused = 0 if in_transaction else TRANSACTIONAL
        if self.is_closed or header.attributes & refused:
            raise self.refusal()
        if self.needs_validation:
            check_time(header, self.settings, now_ms)
        if size is None:
            size = len(entry) - PULSAR_SECTION_AT
        self._check_policies(size, encrypted=encrypted)
        named = sequence if self.policies.deduplication else None
        deduplication = self.producers.deduplication
        if named is not None and deduplication.is_duplicate(self.log.partition_id, named):
            return AppendResult(-1, -1, True, self.acks_from_memory)
        append_time_ms = -1
        if self.stamps:
            entry, header = _set_append_time(entry, now_ms)
            append_time_ms = now_ms
        log = self.log
        try:
            base_offset = log.append(entry, header)
        except LogError as error:
            raise convert_log_error(error) from error
        if named is not None and header.record_count:  # 0 in a chunk that is not the last
            deduplication.record(log.partition_id, named, base_offset, now_ms, log.high_watermark)
        return AppendResult(base_offset, append_time_ms, False, self.acks_from_memory)

    def _check_policies(self, size: int, *, encrypted: bool = True) -> None:
        """Raise if a Pulsar policy of the topic forbids the entry; it holds for all protocols."""
        policies = self._policies
        if 0 < policies.max_message_size < size:
            raise TooLarge(f"{size} bytes, the topic takes {policies.max_message_size}")
        if policies.encryption_required and not encrypted:
            raise PolicyViolation("the topic takes encrypted messages only")

    @property
    def formats(self) -> int:
        """The formats that entries in memory may have, as bits: 1 << Format for each."""
        return self.log.tail_formats

    def last_sequence_id(self, producer_name: str) -> int:
        """Return the highest sequence id that a producer has written here, or -1.

        The id may be of an entry that is not durable yet: wait for the next commit before use.
        """
        if not self.policies.deduplication:
            return NO_SEQUENCE
        return self.producers.deduplication.last_sequence_id(
            self.log.partition_id, producer_key(producer_name)
        )

    def refusal(self) -> BrokerError:
        """Return why a client cannot append to it, or not outside of a transaction."""
        if self._moved is not None:
            return self._moved()
        if self.deleted:
            return UnknownTopic("the topic was deleted")
        if self.terminated:
            return TopicTerminated("the topic was terminated")
        if self._internal:
            return InternalTopicWrite("Cannot append to an internal topic.")
        return InvalidTransactionState("a transactional entry outside of a transaction")


def _set_append_time(records: memoryview, now_ms: int) -> tuple[memoryview, EntryHeader]:
    copy = bytearray(records) if records.readonly else records
    set_log_append_time(copy, now_ms)
    return memoryview(copy), read_header(copy)
