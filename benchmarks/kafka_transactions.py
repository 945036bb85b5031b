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
from benchmarks.rows import Row, Stage, metered, together
from benchmarks.servers import Contender, delete_topic

PARTITIONS = 4
LARGE = 1_000  # messages of a large transaction
LARGE_PRODUCERS = 4
SHORT_LEG_S = 1.0  # at 100 to 150 MB/s: below the 205 MB at which our producers wait for a flush
COMMIT_GATES = (
    at_least("2x Kafka's commits/s with fsync", "commits_per_s", 2.0, KAFKA),
    at_most("p99 of kafka-default", "p99_ms", 1.0, KAFKA_DEFAULT),
    at_most("half its CPU/commit", CPU_PER_REQUEST, 0.5, KAFKA),
)


def producers_leg(topic: str, **options: float) -> Leg:
    """Producers that commit so many messages again and again."""

    def leg(stage: Stage, server: Contender) -> Figures:
        settings = PRODUCER | {"transactional.id": topic}
        return measured(stage, server, topic, settings, "request", options)

    return leg


def measured(  # noqa: PLR0917 - what a leg is of
    stage: Stage,
    server: Contender,
    topic: str,
    settings: dict[str, object],
    unit: str,
    options: dict[str, float],
) -> Figures:
    """Drive many producers; `options` before what the stage has."""

    def drive(**moments: object) -> Result:
        given = {"warmup": 2.0, "seconds": stage.seconds, **options}
        return stage.drivers.rdkafka(
            "producers", server.address, topic, settings=settings, **moments, **given
        )

    return metered(stage, server, drive, unit)


def share_leg(stem: str, times: int) -> Leg:
    """The rate of large transactions as a share of the same load without transactions.

    From an empty tail, and no more than fits in it: what is put off is another row's question.
    """
    load = {"producers": LARGE_PRODUCERS, "messages": LARGE, "size": 1_000}
    short = {**load, "warmup": 0.5, "seconds": SHORT_LEG_S}

    def leg(stage: Stage, server: Contender) -> Figures:
        found: dict[bool, list[Figures]] = {False: [], True: []}
        for transactional in [False, True, True, False] * (times // 2):
            topic = stage.fresh_topic(stem, server, PARTITIONS)
            server.empty_tail()
            own = {"transactional.id": topic} if transactional else {"enable.idempotence": "true"}
            figures = measured(stage, server, topic, PRODUCER | own, "message", short)
            found[transactional].append(figures)
            delete_topic(server.address, topic)
        plain, figures = (together(found[each]) for each in (False, True))
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
            producers_leg(f"commits-{producers}", producers=producers, messages=1, size=100),
            COMMIT_GATES if producers == 1 else (),
        )
        for producers in (1, 10, 100)
    ),
    Row(
        "transactions-of-1000",
        f"{LARGE_PRODUCERS} producers that send {LARGE:,} messages of 1,000 B and commit, beside "
        "idempotent ones that wait for as many acks; four times a second from an empty tail.",
        "",
        0,
        share_leg("large", times=4),
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
