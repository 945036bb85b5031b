"""The questions beside a real Kafka, and the gates that their answers must pass."""

from __future__ import annotations

from benchmarks import kafka_compaction, kafka_security, kafka_transactions
from benchmarks import kafka_legs as legs
from benchmarks.gates import (
    CPU_PER_MESSAGE,
    CPU_PER_REQUEST,
    KAFKA,
    KAFKA_DEFAULT,
    TRILOGUE,
    Gate,
    at_least,
    at_most,
    below,
    within,
)
from benchmarks.kafka_mixed import mixed_leg
from benchmarks.rows import Row

KAFKA_VERSION = "3.9.1"
ONE = {"connections": 1, "window": 1, "size": 100}
PIPELINED = {"connections": 4, "window": 100, "size": 100}
BATCHES_16K = {"connections": 4, "window": 8, "records": 16, "size": 1000}
READ_1K, READ_100 = 600_000, 3_000_000
TAIL_1K, TAIL_100 = 50_000, 500_000  # below the 64 MiB at which a journal file is closed
BURST = 150_000  # 154 MB: three quarters of the 205 MB at which producers wait for a flush
SUSTAINED_S = 20.0
GROUPS = 50
HUNDRED, MANY = 100, 1_000

MANY_CONNECTIONS = (
    at_least("1.3x kafka-default's requests/s", "requests_per_s", 1.3, KAFKA_DEFAULT),
    at_most("half its CPU/request", CPU_PER_REQUEST, 0.5, KAFKA_DEFAULT),
)
READING = (
    at_least("kafka-default's messages/s", "messages_per_s", 1.0, KAFKA_DEFAULT),
    at_most("1.2x its CPU/message", CPU_PER_MESSAGE, 1.2, KAFKA_DEFAULT),
)

SINGLES = (
    Row(
        "one-in-flight",
        "How long does one durable 100 B record take, raw socket, nothing else going on?",
        "one",
        1,
        legs.load_beside_disk_leg("one", **ONE),
        (
            within("p50 <= the disk's own + 0.08 ms", "p50_ms", "disk_p50_ms", 0.08),
            at_most("1.2x kafka-default's CPU/request", CPU_PER_REQUEST, 1.2, KAFKA_DEFAULT),
        ),
        legs.load_syncs("one", **ONE),
    ),
    Row(
        "fifty-connections",
        "50 connections with one 100 B record a request, one in flight each, over 4 partitions.",
        "fifty",
        4,
        legs.load_leg("fifty", partitions=4, **legs.FIFTY),
        MANY_CONNECTIONS,
        legs.load_syncs("fifty", partitions=4, **legs.FIFTY),
    ),
    Row(
        "thousand-partitions",
        # a Kafka that meets 1,000 partitions stalls for 15 s (81 requests/s), then it is steady
        "The same over 1,000 partitions, after 16 s of it (ours: 2 s).",
        "thousand",
        MANY,
        legs.load_leg("thousand", partitions=MANY, **legs.FIFTY),
        MANY_CONNECTIONS,
        legs.load_syncs("thousand", partitions=MANY, **legs.FIFTY),
        warm=legs.load_for("thousand", MANY, kafka_s=16.0, our_s=2.0),
    ),
    Row(
        "pipelined-singles",
        "4 connections with 100 requests in flight each, one 100 B record a request, 4 partitions.",
        "pipelined",
        4,
        legs.load_leg("pipelined", partitions=4, **PIPELINED),
        (at_least("4x kafka-default's requests/s", "requests_per_s", 4.0, KAFKA_DEFAULT),),
        legs.load_syncs("pipelined", partitions=4, **PIPELINED),
    ),
)

BATCHES = (
    Row(
        "burst-1KiB",
        f"librdkafka, acks=all, linger 5 ms: {BURST:,} messages of 1 KiB over 4 partitions, which "
        "fit in our tail, from an empty one; until all are acked.",
        "burst",
        0,
        legs.burst_leg("burst", 1024, 4, BURST, times=2),
        (
            at_least("1.1x kafka-default's messages/s", "messages_per_s", 1.1, KAFKA_DEFAULT),
            at_most("1.2x its CPU/message", CPU_PER_MESSAGE, 1.2, KAFKA_DEFAULT),
        ),
    ),
    Row(
        "sustained-1KiB",
        f"The same for {SUSTAINED_S:.0f} s, with all that is put off.",
        "sustained",
        0,
        legs.sustained_leg("sustained", 1024, 4, SUSTAINED_S),
        (
            at_least("1.2x kafka-default's messages/s", "messages_per_s", 1.2, KAFKA_DEFAULT),
            at_most("0.7x its CPU/message", CPU_PER_MESSAGE, 0.7, KAFKA_DEFAULT),
        ),
        rounds_max=1,
    ),
    Row(
        "batched-100B",
        "The same with 100 B messages, as long as the other rows.",
        "small",
        4,
        legs.produce_leg("small", 100),
    ),
    Row(
        "batches-16KiB",
        "Ready-made batches of 16 records of 1,000 B, 4 connections with 8 in flight each.",
        "b16k",
        4,
        legs.load_bytes_leg("b16k", partitions=4, **BATCHES_16K),
        (
            at_least("kafka-default's requests/s", "requests_per_s", 1.0, KAFKA_DEFAULT),
            at_most("0.8x its CPU/request", CPU_PER_REQUEST, 0.8, KAFKA_DEFAULT),
        ),
    ),
)

READS = (
    Row(
        "consume-1KiB",
        f"librdkafka reads {READ_1K:,} messages of 1 KiB from the earliest offset, 4 partitions, "
        "twice, after a reading that is not measured.",
        "read1k",
        4,
        legs.consume_twice_leg("read1k", 4, READ_1K),
        READING,
        fill=legs.fill("read1k", 1024, READ_1K),
        warm=legs.read_before("read1k", 4, READ_1K),
    ),
    Row(
        "consume-cold-1KiB",
        "The same when nothing of it lies in the page cache.",
        "cold1k",
        4,
        legs.consume_cold_leg("cold1k", 4, READ_1K),
        READING,
        fill=legs.fill("cold1k", 1024, READ_1K),
    ),
    Row(
        "consume-100-partitions",
        "The same from the page cache over 100 partitions.",
        "hundred1k",
        HUNDRED,
        legs.consume_twice_leg("hundred1k", HUNDRED, READ_1K),
        READING,
        fill=legs.fill("hundred1k", 1024, READ_1K),
        warm=legs.read_before("hundred1k", HUNDRED, READ_1K),
    ),
    Row(
        "consume-100B",
        f"The same with {READ_100:,} messages of 100 B.",
        "read100",
        4,
        legs.consume_twice_leg("read100", 4, READ_100),
        READING,
        fill=legs.fill("read100", 100, READ_100),
        warm=legs.read_before("read100", 4, READ_100),
    ),
    Row(
        "consume-tail-1KiB",
        f"{TAIL_1K:,} messages of 1 KiB that were written just now (ours: in memory), three times.",
        "tail1k",
        0,
        legs.consume_tail_leg("tail1k", 1024, TAIL_1K, times=3),
        READING,
    ),
    Row(
        "consume-tail-100B",
        f"The same with {TAIL_100:,} messages of 100 B.",
        "tail100",
        0,
        legs.consume_tail_leg("tail100", 100, TAIL_100, times=3),
        READING,
    ),
    Row(
        "consume-tail-100-partitions",
        f"The same with {TAIL_1K:,} messages of 1 KiB over 100 partitions.",
        "tailhundred",
        0,
        legs.consume_tail_leg("tailhundred", 1024, TAIL_1K, times=3, partitions=HUNDRED),
        READING,
    ),
    Row(
        "idle-thousand",
        f"Fetches of {MANY:,} partitions without news, in a session (KIP-227) and without, "
        "one after the other.",
        "idle",
        MANY,
        legs.idle_leg("idle", MANY),
    ),
)

THROUGH = (
    Row(
        "through-1000",
        "End to end at 1,000 messages/s of 100 B, linger 0, one partition, librdkafka.",
        "through1",
        1,
        legs.through_leg("through1", 1_000),
    ),
    Row(
        "through-10000",
        "The same at 10,000/s.",
        "through10",
        1,
        legs.through_leg("through10", 10_000),
        (below("p99 <= 30 ms", "p99_ms", 30.0),),
    ),
)

OTHERS = (
    Row(
        "groups",
        f"{GROUPS} groups of two members each until every member has its partition; classic, and "
        "KIP-848 where there is one.",
        "groups",
        2,
        legs.groups_leg("groups", GROUPS),
    ),
    Row(
        "topic-of-1000",
        f"A topic with {MANY:,} partitions: until it is made, until all have leaders.",
        "many",
        0,
        legs.topics_leg(MANY),
        (below("created <= 100 ms", "created_s", 0.1),),
    ),
    Row(
        "loop-lag",
        "How late our event loop is with all kinds of clients at once, which are given way to.",
        "mixed",
        0,
        mixed_leg,
        (below("p99 <= 5 ms", "lag_p99_ms", 5.0),),
        rounds_max=1,
        servers=(TRILOGUE,),
    ),
)

ROWS = (
    *SINGLES,
    *BATCHES,
    *READS,
    *THROUGH,
    *OTHERS,
    *kafka_transactions.ROWS,
    *kafka_compaction.ROWS,
    *kafka_security.ROWS,
)

START = "start-and-idle"
RESTART = "restart"
NAMES = (START, *(row.name for row in ROWS), RESTART)
STARTED = (KAFKA, TRILOGUE)  # what a flush costs plays no part
START_GATES: tuple[Gate, ...] = (
    below("start <= 0.8 s", "start_s", 0.8),
    below("idle <= 120 MB", "idle_mb", 120.0),
)
