"""Every named limit, with the value that the code has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tools.docs.blocks import table
from trilogue.broker.cursors.committed_offsets import NAME_SIZE_MAX, OffsetLimits
from trilogue.broker.facts import BATCHES_MAX
from trilogue.broker.groups.classic.members import GroupSettings
from trilogue.broker.groups.consumer.group import ConsumerGroupSettings
from trilogue.broker.groups.consumer.patterns import PATTERNS_ALL_MAX
from trilogue.broker.groups.consumer.subscribed_topics import PATTERNS_MAX
from trilogue.broker.names import LENGTH_MAX
from trilogue.broker.producers.idempotence import PENDING_MAX, ProducerLimits
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.broker.settings.topic_table import ENTRY_SIZE_MAX
from trilogue.broker.settings.values import Kind, format_value
from trilogue.broker.topics.cluster import ClusterLimits
from trilogue.broker.transactions.pending_acks import RANGES_IN_ALL_MAX, RANGES_MAX
from trilogue.broker.transactions.transaction import TransactionLimits
from trilogue.entry.conversion.convert import CONVERTED_MAX
from trilogue.entry.conversion.pulsar_sections import PAYLOAD_MAX
from trilogue.entry.kafka.record_batch import DECOMPRESSED_LIMIT
from trilogue.gateway.authentication import WAITING_MAX as WAITING_LOGINS_MAX
from trilogue.gateway.authentication import WAITING_PER_HOST_MAX
from trilogue.gateway.http.connection_limits import HttpLimits
from trilogue.gateway.http.request_limits import BODY_MAX, BODY_S
from trilogue.gateway.http.server import HEAD_SIZE_LIMIT
from trilogue.gateway.kafka.apis import TABLE as APIS
from trilogue.gateway.kafka.configs.configs import ANSWER_BYTES_MAX
from trilogue.gateway.kafka.context import KafkaSettings
from trilogue.gateway.kafka.fetch.fetch import ROOM_BYTES_MIN
from trilogue.gateway.memory_budget import (
    PATIENCE_S,
    RATE_MIN,
    RECEIVED_BYTES_MAX,
    STALLED_S,
    UNSENT_BYTES_MAX,
)
from trilogue.gateway.reply_queue import BYTES_A_WORK, ITERATION_WORK
from trilogue.gateway.segments.read_ahead import AHEAD_BYTES_MAX, KEPT_S
from trilogue.gateway.stream import Limits
from trilogue.gateway.stream_memory import RECEIVED_FREE
from trilogue.gateway.tls_transport import CONTROL_BYTES_MAX, PADDING_BYTES
from trilogue.log.jobs.compaction import UNDECIDED_MAX
from trilogue.log.jobs.merge_plan import FIRST_LEVEL_LAST, FIRST_LEVEL_MAX, INPUTS_MAX, TARGET_BYTES
from trilogue.log.journal.frame import MAX_FACT, MAX_FRAME
from trilogue.log.log import LogLimits
from trilogue.log.objects.cache import CACHE_BYTES, CHUNK, RUN_MAX
from trilogue.log.objects.objects import OBJECT_BYTES_MAX, READING
from trilogue.log.objects.obstore_store import PUT_BYTES_A_SECOND, REQUEST_S
from trilogue.log.segments.segment import BLOCK_TARGET
from trilogue.log.segments.segment_reader import HANDLES_MAX
from trilogue.log.tail.chunks import POOL_BYTES
from trilogue.meta.operations import OPS_MAX
from trilogue.meta.queued_meta import WAITING_MAX
from trilogue.meta.sqlite import SIZE_MAX
from trilogue.node.settings.sources import CONFIG_SIZE_LIMIT
from trilogue.node.settings.table import BY_KEY
from trilogue.wire.frames import INITIAL_CAPACITY

HEAD = ("what", "limit", "set by", "at the limit")


class Bound(NamedTuple):
    """One limit; `setting` is empty if no setting changes it."""

    what: str
    value: str
    then: str
    setting: str = ""


def size(number: int) -> str:
    """Bytes as people read them."""
    return format_value(Kind.SIZE, number)


def ms(number: int) -> str:
    """Milliseconds as people read them."""
    return format_value(Kind.DURATION, number)


def render(bounds: Iterator[Bound]) -> str:
    """Return the table of these limits."""
    rows = []
    for bound in bounds:
        assert not bound.setting or bound.setting in BY_KEY, bound
        setting = f"`{bound.setting}`" if bound.setting else ""
        rows.append((bound.what, bound.value, setting, bound.then))
    return table(HEAD, rows)


def connections() -> str:
    """Connections and requests."""
    return render(_connections())


def _connections() -> Iterator[Bound]:
    limits, kafka, http = Limits(), KafkaSettings(), HttpLimits()
    closed, waits = "is closed at once", "is not read until"
    yield Bound("connections of the Kafka listener", f"{limits.connections:,}", closed,
                "connections.limit")  # fmt: skip
    yield Bound("of them from one address", f"{limits.connections_per_address:,}", closed,
                "connections.per-address")  # fmt: skip
    cut = "its connection is closed"
    yield Bound("one request", size(limits.frame_bytes), cut, "frames.limit")
    most = Counter(row.frame_bytes_max for row in APIS).most_common(1)[0][0]
    yield Bound("one request, most kinds", size(most), cut)
    for row in APIS:
        if most < row.frame_bytes_max < limits.frame_bytes:
            yield Bound(f"one {row.name} request", size(row.frame_bytes_max), cut)
    named = Counter(row.elements_max for row in APIS)
    usual = named.most_common(1)[0][0]
    yield Bound("topics, partitions and members that one request names, most kinds", f"{usual:,}",
                cut)  # fmt: skip
    for most in sorted(named.keys() - {usual}):
        kinds = ", ".join(row.name for row in APIS if row.elements_max == most)
        yield Bound(f"the same of {kinds}", f"{most:,}", cut)
    yield Bound("topics that one request creates, extends, alters or deletes",
                f"{kafka.topics_per_request_max:,}",
                "`INVALID_REQUEST` for the rest")  # fmt: skip
    yield Bound("topics whose settings or partitions one request describes",
                f"{kafka.described_per_request_max:,}", "`INVALID_REQUEST`")  # fmt: skip
    yield Bound("settings in one response", f"about {size(ANSWER_BYTES_MAX)}",
                "`INVALID_REQUEST` for the rest")  # fmt: skip
    yield Bound("requests of one connection in one loop iteration",
                f"{limits.turn_frames} or {size(limits.turn_bytes)}",
                "the rest waits for the next iteration")  # fmt: skip
    yield Bound("unanswered requests of one connection",
                f"{limits.in_flight_requests:,}", f"{waits} half of them are answered")  # fmt: skip
    yield Bound("finished responses behind an unfinished one",
                size(limits.waiting_reply_bytes), f"{waits} half of it has left")  # fmt: skip
    yield Bound("bytes sent that the peer does not read", size(limits.write_high_bytes),
                f"{waits} the peer reads")  # fmt: skip
    yield from _memory()
    yield Bound("a request that stays incomplete",
                f"{limits.incomplete_frame_s:.0f} s, and 1 s more for each "
                f"{size(limits.incomplete_frame_bytes_per_s)} that came",
                cut)  # fmt: skip
    yield Bound("an idle connection", f"{limits.idle_s:.0f} s", "is closed")
    yield from _logins(cut)
    yield Bound("one Fetch response", size(kafka.fetch_bytes_max),
                "the rest comes with the next fetch; one batch is always sent whole")  # fmt: skip
    yield Bound("work for one connection's responses in one loop iteration",
                f"{ITERATION_WORK:,} partitions or {size(ITERATION_WORK << BYTES_A_WORK)}",
                "the rest waits for another iteration")  # fmt: skip
    yield Bound("data read ahead of fast consumers, of all connections",
                f"{size(AHEAD_BYTES_MAX)}, kept for {KEPT_S} s", "nothing is read ahead"
                )  # fmt: skip
    yield Bound("fetch sessions", f"{kafka.fetch_sessions_max:,}",
                "an unused one is evicted, or no new one is opened",
                "kafka.fetch-sessions")  # fmt: skip
    yield Bound("memory of all fetch sessions", size(kafka.fetch_sessions_bytes_max),
                "the same; one that grows is closed",
                "kafka.fetch-sessions-memory")  # fmt: skip
    yield Bound("a long poll", ms(kafka.fetch_wait_max_ms), "is answered, empty if need be")
    yield Bound("creating or deleting topics", ms(kafka.topics_timeout_max_ms),
                "is answered with a timeout, and is completed all the same")  # fmt: skip
    yield Bound("connections of the HTTP listeners", f"{http.connections:,}", closed)
    yield Bound("of them from one address", f"{http.connections_per_address:,}", closed)
    yield Bound("body of an HTTP request", f"{size(BODY_MAX)} in {BODY_S:.0f} s", "413, 408")
    yield Bound("head of an HTTP request", f"{size(HEAD_SIZE_LIMIT)} in {http.head_s:.0f} s",
                "its connection is closed")  # fmt: skip


def _logins(cut: str) -> Iterator[Bound]:
    yield Bound("what a TLS client sends beyond its data (KeyUpdates)",
                f"{size(CONTROL_BYTES_MAX)}, and {size(PADDING_BYTES)} of padding for each record",
                cut)  # fmt: skip
    yield Bound("logins by password that wait for a thread",
                f"{WAITING_LOGINS_MAX}, {WAITING_PER_HOST_MAX} from one address; these take turns",
                "is not checked, the last of the address with most first: clients are told to try "
                "again")  # fmt: skip


def _memory() -> Iterator[Bound]:
    yield Bound("memory of messages requested and not read yet, of all connections and protocols",
                size(UNSENT_BYTES_MAX),
                f"reads of segments wait; fetches return {size(ROOM_BYTES_MIN)} or one batch; "
                f"a connection that reads nothing for {STALLED_S} s, or less than "
                f"{size(RATE_MIN)} a second for {PATIENCE_S:g} s, is closed if others wait",
                "connections.unsent-memory")  # fmt: skip
    yield Bound("memory of requests received in part, of all connections and protocols",
                size(RECEIVED_BYTES_MAX),
                f"one larger than {size(RECEIVED_FREE)} is read further when there is room for "
                f"all of it, above the limit one larger than {size(INITIAL_CAPACITY)}; a "
                f"connection that sends nothing for {STALLED_S} s, or less than {size(RATE_MIN)} "
                f"a second for {PATIENCE_S:g} s, is closed if others wait",
                "connections.received-memory")  # fmt: skip


def topics() -> str:
    """Topics, batches, producers, groups."""
    return render(_topics())


def _topics() -> Iterator[Bound]:
    cluster, groups, cursors = ClusterLimits(), GroupSettings(), OffsetLimits()
    producers = ProducerLimits()
    yield Bound("name of a topic", f"{LENGTH_MAX} characters", "`INVALID_TOPIC_EXCEPTION`")
    yield Bound("partitions of one topic", f"{cluster.topic_partitions_max:,}",
                "`INVALID_PARTITIONS`")  # fmt: skip
    yield Bound("partitions of all topics", f"{cluster.partitions_max:,}",
                "`INVALID_PARTITIONS`")  # fmt: skip
    yield Bound("a record batch, as sent",
                f"{TopicSettings().message_size_max:,} bytes; at most {size(ENTRY_SIZE_MAX)}",
                "`MESSAGE_TOO_LARGE`", "topics.max-entry")  # fmt: skip
    yield Bound("a batch that is decompressed (search by time, Spark)",
                size(DECOMPRESSED_LIMIT), "an error of its partition")  # fmt: skip
    skipped = "readers of another protocol skip it, and it is counted"
    yield Bound("an entry that is converted, decompressed", size(DECOMPRESSED_LIMIT), skipped)
    yield Bound("the same, as a Kafka batch", size(CONVERTED_MAX), skipped)
    yield Bound("the same, as messages of a Pulsar batch, before it is cut and compressed",
                size(PAYLOAD_MAX), skipped)  # fmt: skip
    yield Bound("a batch for a compacted topic, decompressed", size(DECOMPRESSED_LIMIT),
                "`INVALID_RECORD`")  # fmt: skip
    yield Bound("batches of one producer that may be repeated", f"{BATCHES_MAX}",
                "older ones: `DUPLICATE_SEQUENCE_NUMBER`")  # fmt: skip
    yield Bound("batches of one producer, acknowledged from memory, that are not on disk yet",
                f"{PENDING_MAX:,}", "a crash in that moment: `OUT_OF_ORDER_SEQUENCE_NUMBER`"
                )  # fmt: skip
    yield Bound("pairs of producer and partition that are remembered",
                f"{producers.count_max:,}, for {ms(producers.expiration_ms)}",
                "the longest idle one is forgotten")  # fmt: skip
    transactions, pulsar = TransactionLimits(), "Pulsar: `TooManyRequests`"
    yield Bound("transactional ids", f"{transactions.ids_max:,}", "`POLICY_VIOLATION`")
    yield Bound("transactional ids that a principal has created since the start",
                "as many as are free", "`POLICY_VIOLATION`")  # fmt: skip
    yield Bound("partitions, positions, ranges of acks of a transaction",
                f"{transactions.partitions_max:,}, {transactions.positions_max:,}, "
                f"{transactions.ack_ranges_max:,}", f"`POLICY_VIOLATION`, {pulsar}")  # fmt: skip
    yield Bound("partitions, groups and positions of all open transactions",
                f"{transactions.parts_max:,}", f"`POLICY_VIOLATION`, {pulsar}")  # fmt: skip
    yield Bound("open transactions of Pulsar's clients", f"{transactions.open_max:,}", pulsar)
    yield Bound("their transactions whose outcome is known after the end",
                f"{transactions.ended_max:,}", "`TransactionNotFound`")  # fmt: skip
    yield Bound("ranges of pending acks of a subscription", f"{RANGES_MAX:,}", pulsar)
    yield Bound("ranges of pending acks of all subscriptions", f"{RANGES_IN_ALL_MAX:,}", pulsar)
    yield Bound("groups", f"{groups.groups_max:,}",
                "the one that was empty longest is forgotten; if all have members: "
                "`COORDINATOR_NOT_AVAILABLE`")  # fmt: skip
    yield Bound("members of a group", f"{groups.size_max:,}", "`GROUP_MAX_SIZE_REACHED`")
    yield Bound("metadata of one member", size(groups.member_bytes_max),
                "`GROUP_MAX_SIZE_REACHED`")  # fmt: skip
    yield Bound("metadata of all members of a group, and its assignment", size(groups.bytes_max),
                "`GROUP_MAX_SIZE_REACHED`")  # fmt: skip
    yield Bound("the same of all groups of the classic protocol", size(groups.total_bytes_max),
                "`GROUP_MAX_SIZE_REACHED`")  # fmt: skip
    yield Bound("shortest session timeout", ms(groups.session_timeout_min_ms),
                "`INVALID_SESSION_TIMEOUT`", "groups.session-timeout-min")  # fmt: skip
    yield Bound("longest session timeout", ms(groups.session_timeout_max_ms),
                "`INVALID_SESSION_TIMEOUT`", "groups.session-timeout-max")  # fmt: skip
    yield Bound("patterns of a consumer group (KIP-848), and of all",
                f"{PATTERNS_MAX}, {PATTERNS_ALL_MAX}", "`GROUP_MAX_SIZE_REACHED`")  # fmt: skip
    yield Bound("names, partitions and (20 each) members of all consumer groups",
                f"{ConsumerGroupSettings().total_max:,}", "`GROUP_MAX_SIZE_REACHED`",
                "groups.consumer-max-total")  # fmt: skip
    yield Bound("name of a group", f"{NAME_SIZE_MAX:,} bytes", "`INVALID_GROUP_ID`")
    yield Bound("text beside a position", f"{cursors.metadata_size_max:,} bytes",
                "`OFFSET_METADATA_TOO_LARGE`")  # fmt: skip
    yield Bound("texts of more than 100 characters beside all positions",
                size(cursors.text_bytes_max), "`INVALID_COMMIT_OFFSET_SIZE`")  # fmt: skip
    yield Bound("positions of all groups", f"{cursors.count_max:,}",
                "`INVALID_COMMIT_OFFSET_SIZE`")  # fmt: skip


def storage() -> str:
    """Journal, memory, disk, meta."""
    return render(_storage())


def _storage() -> Iterator[Bound]:
    log = LogLimits()
    journal = log.journal
    share = f"at {log.watermark:.0%} of it producers wait, at all of it they are refused"
    yield Bound("one window, which is one write and one sync", size(journal.window_bytes),
                "the next window takes what comes")  # fmt: skip
    yield Bound("full windows that wait for the disk", str(journal.queued_windows),
                f"from {log.queued_windows} on producers wait, at the bound they are refused"
                )  # fmt: skip
    yield Bound("one frame", size(MAX_FRAME), "no listener accepts more")
    yield Bound("one fact", size(MAX_FACT), "a long commit is cut into several")
    yield Bound("a journal file", size(journal.file_bytes), "is sealed and flushed",
                "journal.file-size")  # fmt: skip
    yield Bound("entries in it", f"{journal.file_entries:,}", "is sealed and flushed",
                "journal.file-entries")  # fmt: skip
    yield Bound("its age, once it holds something", ms(journal.file_age_ms),
                "is sealed and flushed", "journal.file-age")  # fmt: skip
    yield Bound("memory of the tail (entries in no segment yet)", size(log.tail_bytes), share,
                "tail.limit")  # fmt: skip
    yield Bound("entries in it", f"{log.tail_entries:,}",
                f"at {log.watermark:.0%} of it producers wait", "tail.entries")  # fmt: skip
    yield Bound("freed tail memory that is kept for the next entries", size(POOL_BYTES),
                "more goes back to the system")  # fmt: skip
    yield Bound("least free room on the disk", size(journal.min_free_bytes),
                "producers are refused, readers are served", "disk.min-free")  # fmt: skip
    yield Bound("reserve on a full disk", size(log.reserve_bytes),
                "is given up for flushes and deletions, then made again",
                "disk.reserve")  # fmt: skip
    yield Bound("a block of a segment", size(BLOCK_TARGET), "a larger entry is a block of its own")
    yield Bound("segments that wait for their first merge", str(FIRST_LEVEL_MAX),
                f"a flush waits for the merge, unless merges fail; at {FIRST_LEVEL_LAST} for "
                "whatever else is under way; those with 2 MiB and more of each partition do not "
                "count")  # fmt: skip
    yield Bound("segments that are merged at a time", str(INPUTS_MAX), "the rest comes next")
    yield Bound("a merged segment", size(TARGET_BYTES),
                "ends with the partition, or the block of a large one, that reaches it"
                )  # fmt: skip
    yield Bound("segments that are open at a time", str(HANDLES_MAX),
                "the least recently used one is closed")  # fmt: skip
    yield Bound("operations in one change of meta", f"{OPS_MAX:,}",
                "more snapshot rows go ahead in changes of their own")  # fmt: skip
    yield Bound("changes that wait for meta", f"{WAITING_MAX:,}", "further ones are refused")
    yield Bound("meta's database", size(SIZE_MAX), "changes that do not fit are refused")
    yield Bound("keys of a partition that is compacted", BY_KEY["compaction.memory"].default,
                "the rest is done in the next round", "compaction.memory")  # fmt: skip
    yield Bound("messages of transactions whose end compaction has not met yet",
                f"{UNDECIDED_MAX:,}", "the rest is done in the next round")  # fmt: skip
    yield from _objects()
    yield Bound("the config file", size(CONFIG_SIZE_LIMIT), "the server does not start")


def _objects() -> Iterator[Bound]:
    yield Bound("an object", size(OBJECT_BYTES_MAX), "a larger segment stays a file")
    yield Bound("cache of objects", size(CACHE_BYTES),
                "the least recently used chunk is evicted", "objects.cache-size")  # fmt: skip
    yield Bound("one read of object storage", f"{RUN_MAX} chunks of {size(CHUNK)}",
                "the next request has the rest")  # fmt: skip
    yield Bound("its answer", f"{REQUEST_S:g} s", "tried again")
    yield Bound("tries of a read", f"{READING.tries}, none begun after {READING.limit_s:g} s",
                "`KAFKA_STORAGE_ERROR`, for all reads of objects at once")  # fmt: skip
    yield Bound("an upload", f"{2 * REQUEST_S:g} s, and 1 s more for each "
                f"{size(PUT_BYTES_A_SECOND)}", "tried again later")  # fmt: skip
