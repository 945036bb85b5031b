"""Transactions beside a real Kafka: time and CPU of a commit, throughput of large transactions.

librdkafka, by version 1 of the protocol's transactions in all servers. A real Kafka answers a
commit before its markers are written, and refuses the next transaction of the producer until they
are; ours answers when everything is durable.
"""

from __future__ import annotations

from benchmarks.drivers import Result
from benchmarks.gates import (
    CPU_PER_REQUEST,
    KAFKA,
    KAFKA_DEFAULT,
    TRILOGUE,
    Figures,
    Gate,
    at_least,
    at_most,
)
from benchmarks.kafka_legs import PRODUCER, Leg
from benchmarks.rows import Row, Stage, metered
from benchmarks.servers import Contender

PARTITIONS = 4
LARGE = 1_000  # messages of a large transaction
COMMIT_GATES = (
    at_least("2x Kafka's commits/s with fsync", "commits_per_s", 2.0, KAFKA),
    at_most("p99 of kafka-default", "p99_ms", 1.0, KAFKA_DEFAULT),
    at_most("half its CPU/commit", CPU_PER_REQUEST, 0.5, KAFKA),
)


def commits_leg(topic: str, producers: int, messages: int, size: int) -> Leg:
    """Producers that commit so many messages again and again."""

    def leg(stage: Stage, server: Contender) -> Figures:
        def drive(**moments: object) -> Result:
            return stage.drivers.rdkafka(
                "producers",
                server.address,
                topic,
                settings=PRODUCER | {"transactional.id": topic},
                **moments,
                producers=producers,
                messages=messages,
                size=size,
                warmup=2.0,
                seconds=stage.seconds,
            )

        return metered(stage, server, drive, "request")

    return leg


def plain_share_leg(topic: str, producers: int) -> Leg:
    """The messages/s of large transactions as a share of those without transactions."""
    transactional = commits_leg(topic, producers, LARGE, 1_000)

    def leg(stage: Stage, server: Contender) -> Figures:
        def drive(**moments: object) -> Result:
            return stage.drivers.rdkafka(
                "producers",
                server.address,
                topic,
                settings=PRODUCER | {"enable.idempotence": "true"},
                **moments,
                producers=producers,
                messages=0,
                size=1_000,
                warmup=2.0,
                seconds=stage.seconds,
            )

        plain = metered(stage, server, drive, "message")
        figures = transactional(stage, server)
        figures["plain_messages_per_s"] = plain["messages_per_s"]
        figures["share_of_plain"] = figures["messages_per_s"] / plain["messages_per_s"]
        return figures

    return leg


ROWS = (
    *(
        Row(
            f"commits-{producers}",
            f"{producers} producers that commit one message of 100 B again and again, 4 "
            "partitions: time of a commit, CPU of the server for a whole transaction.",
            f"commits-{producers}",
            PARTITIONS,
            commits_leg(f"commits-{producers}", producers, 1, 100),
            COMMIT_GATES if producers == 1 else (),
        )
        for producers in (1, 10, 100)
    ),
    Row(
        "transactions-of-1000",
        f"4 producers, transactions of {LARGE:,} messages of 1,000 B, beside idempotent producers "
        "without transactions.",
        "large",
        PARTITIONS,
        plain_share_leg("large", 4),
        (
            Gate(
                "0.9x without transactions",
                lambda medians: medians[TRILOGUE]["share_of_plain"],
                0.9,
                at_least=True,
            ),
        ),
    ),
)
