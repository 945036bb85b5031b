"""The loads on the Kafka gateway and on a real Kafka: the legs of the rows in kafka_rows.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic
from tests.conformance.asking import Asker

from benchmarks.drivers import Result
from benchmarks.gates import Figures
from benchmarks.log import limits
from benchmarks.measure import Meter, counted_syncs, syncs_in
from benchmarks.rows import Stage, check_stored, metered, together
from benchmarks.servers import Contender, Trilogue, create_topic, delete_topic
from trilogue.wire.kafka.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

Leg = Callable[[Stage, Contender], Figures]


class Endpoint(NamedTuple):
    """A listener of a server, and what a client of librdkafka needs for it."""

    address: str
    settings: dict[str, object]


def plaintext(server: Contender) -> Endpoint:
    return Endpoint(server.address, {})


PRODUCER = {"acks": "all", "linger.ms": 5}
FIFTY = {"connections": 50, "window": 1, "size": 100}
CONSUMER = {"group.id": "bench", "enable.auto.commit": "false", "fetch.message.max.bytes": 4 << 20}
# Each message is sent, and fetched, as soon as possible.
THROUGH = {
    "p:acks": "all",
    "p:linger.ms": 0,
    "c:group.id": "bench",
    "c:enable.auto.commit": "false",
}
FETCH_VERSION = 12
FULL_EPOCH, OPENING_EPOCH = -1, 0
MADE_IN_S = 30.0
WARMING = 100_000
BLOCK = 4096
DISK_WRITE = 8 << 20


# ---- ready-made requests


def load_leg(topic: str, **options: float) -> Leg:
    """Ready-made requests (load.c)."""

    def leg(stage: Stage, server: Contender) -> Figures:
        def drive(**moments: object) -> Result:
            return stage.drivers.load(
                server.address, topic, **moments, **options, warmup=1.0, seconds=stage.seconds
            )

        return metered(stage, server, drive, "request")

    return leg


def load_beside_disk_leg(topic: str, **options: float) -> Leg:
    """The same, and the median time of a commit of one block that the disk itself needs."""
    run_leg = load_leg(topic, **options)

    def leg(stage: Stage, server: Contender) -> Figures:
        figures = run_leg(stage, server)
        disk = limits.best(stage.scratch, BLOCK, stage.seconds / 4)
        return {**figures, "disk_p50_ms": disk["p50_ms"]}

    return leg


def load_bytes_leg(topic: str, **options: float) -> Leg:
    """The same, with the rate in bytes."""
    run_leg = load_leg(topic, **options)

    def leg(stage: Stage, server: Contender) -> Figures:
        figures = run_leg(stage, server)
        size = options["size"] * options.get("records", 1)
        figures["mb_per_s"] = figures["requests_per_s"] * size / 1e6
        return figures

    return leg


def load_syncs(topic: str, **options: float) -> Leg:
    """How many requests share a sync, in a short traced run that is not measured otherwise."""

    def count(stage: Stage, server: Contender) -> Figures:
        log = stage.scratch / f"syncs-{topic}-{server.name}"
        with counted_syncs(server.pid, log):
            result = stage.drivers.load(server.address, topic, **options, warmup=0.0, seconds=1.5)
        return {"syncs_per_request": syncs_in(log) / result["requests"]}

    return count


def load_for(topic: str, partitions: int, kafka_s: float, our_s: float) -> Callable[..., None]:
    """Ready-made requests before anything is measured: compilers and caches come to rest."""

    def warm(stage: Stage, server: Contender) -> None:
        seconds = our_s if isinstance(server, Trilogue) else kafka_s
        stage.drivers.load(
            server.address, topic, partitions=partitions, **FIFTY, warmup=0, seconds=seconds
        )

    return warm


# ---- librdkafka


def produce_leg(
    topic: str, size: int, endpoint: Callable[[Contender], Endpoint] = plaintext
) -> Leg:
    """Its usual batches."""

    def leg(stage: Stage, server: Contender) -> Figures:
        at = endpoint(server)

        def drive(**moments: object) -> Result:
            return stage.drivers.rdkafka(
                "produce",
                at.address,
                topic,
                settings=PRODUCER | at.settings,
                **moments,
                size=size,
                warmup=1.0,
                seconds=stage.seconds,
            )

        return metered(stage, server, drive, "message")

    return leg


def sustained_leg(stem: str, size: int, partitions: int, seconds_min: float) -> Leg:
    """The same for so long that all that is put off has its turn; the topic goes afterwards.

    Beside it: how many synced bytes the disk takes by itself, in writes as large as full windows.
    """

    def leg(stage: Stage, server: Contender) -> Figures:
        topic = stage.fresh_topic(stem, server, partitions)
        longer = replace(stage, seconds=stage.at_least(seconds_min))
        figures = produce_leg(topic, size)(longer, server)
        check_stored(server, topic, partitions, figures["messages"])
        delete_topic(server.address, topic)
        disk = limits.best(stage.scratch, DISK_WRITE, stage.seconds / 2)
        return {**figures, "disk_mb_per_s": disk["mb_per_s"]}

    return leg


def burst_leg(stem: str, size: int, partitions: int, messages: int, times: int) -> Leg:
    """As many messages as fit in our tail, from a server that has nothing in its own."""

    def leg(stage: Stage, server: Contender) -> Figures:
        found = []
        for _ in range(times):
            topic = stage.fresh_topic(stem, server, partitions)
            server.empty_tail()

            def drive(topic: str = topic, **moments: object) -> Result:
                return stage.drivers.rdkafka(
                    "burst",
                    server.address,
                    topic,
                    settings=PRODUCER,
                    **moments,
                    size=size,
                    messages=messages,
                )

            found.append(metered(stage, server, drive, "message"))
            check_stored(server, topic, partitions, messages)
            delete_topic(server.address, topic)
        return together(found)

    return leg


def fill(topic: str, size: int, messages: int) -> Callable[[Stage, Contender], None]:
    """Write what is going to be read."""

    def write(stage: Stage, server: Contender) -> None:
        stage.drivers.rdkafka(
            "fill", server.address, topic, settings=PRODUCER, size=size, messages=messages
        )

    return write


def consume_leg(
    topic: str,
    partitions: int,
    messages: int,
    endpoint: Callable[[Contender], Endpoint] = plaintext,
) -> Leg:
    """Read it all from the earliest offset."""

    def leg(stage: Stage, server: Contender) -> Figures:
        at = endpoint(server)

        def drive(**moments: object) -> Result:
            return stage.drivers.rdkafka(
                "consume",
                at.address,
                topic,
                settings=CONSUMER | at.settings,
                **moments,
                partitions=partitions,
                messages=messages,
            )

        return metered(stage, server, drive, "message")

    return leg


def consume_twice_leg(topic: str, partitions: int, messages: int) -> Leg:
    """Read it all twice: one reading of less than a second is a few dozen ticks of CPU."""
    run_leg = consume_leg(topic, partitions, messages)

    def leg(stage: Stage, server: Contender) -> Figures:
        found = [run_leg(stage, server) for _ in range(2)]
        return {**together(found), "messages": found[0]["messages"]}  # that many are stored

    return leg


def read_before(topic: str, partitions: int, messages: int) -> Callable[[Stage, Contender], None]:
    """Read it once without measuring: the first reading of segments compiles, and fills caches."""

    def read(stage: Stage, server: Contender) -> None:
        stage.drivers.rdkafka(
            "consume",
            server.address,
            topic,
            settings=CONSUMER,
            partitions=partitions,
            messages=messages,
        )

    return read


def consume_cold_leg(topic: str, partitions: int, messages: int) -> Leg:
    """Read it all from the disk."""
    run_leg = consume_leg(topic, partitions, messages)

    def leg(stage: Stage, server: Contender) -> Figures:
        stage.settle()
        for path in server.data.rglob("*"):
            if path.is_file():
                limits.forget(path)
        return run_leg(stage, server)

    return leg


def consume_tail_leg(stem: str, size: int, messages: int, times: int, partitions: int = 4) -> Leg:
    """Read what has just been written, several times: ours is still in memory."""

    def leg(stage: Stage, server: Contender) -> Figures:
        topic = stage.fresh_topic(stem, server, partitions)
        server.empty_tail()
        fill(topic, size, messages)(stage, server)
        found = [consume_leg(topic, partitions, messages)(stage, server) for _ in range(times)]
        delete_topic(server.address, topic)
        return together(found)

    return leg


def through_leg(topic: str, rate: int) -> Leg:
    """From the producer's call to the consumer's hand, one process, linger 0."""

    def leg(stage: Stage, server: Contender) -> Figures:
        def drive(**moments: object) -> Result:
            return stage.drivers.rdkafka(
                "through",
                server.address,
                topic,
                settings=THROUGH,
                **moments,
                size=100,
                rate=rate,
                partitions=1,
                warmup=1.0,
                seconds=stage.seconds,
            )

        return metered(stage, server, drive, "message")

    return leg


def groups_leg(topic: str, groups: int) -> Leg:
    """Until each of two members of each group has one partition; classic, and KIP-848 beside it.

    A real 3.9 has no groups of KIP-848 unless its storage was formatted for them.
    """

    def leg(stage: Stage, server: Contender) -> Figures:
        number = next(stage.numbers)

        def drive(protocol: str, **moments: object) -> Result:
            return stage.drivers.rdkafka(
                "groups",
                server.address,
                topic,
                settings={"group.id": f"{protocol}-{number}", "group.protocol": protocol},
                **moments,
                partitions=2,
                groups=groups,
                members=2,
            )

        classic = metered(stage, server, lambda **moments: drive("classic", **moments), "message")
        wanted = ("stable_s", "cpu_us_per_message", "seconds")
        figures = {key: classic[key] for key in wanted}
        if has_consumer_groups(server):
            figures["stable_848_s"] = drive("consumer")["stable_s"]
        return figures

    return leg


def has_consumer_groups(server: Contender) -> bool:
    version = getattr(server, "version", "")
    return not version or int(version.split(".")[0]) >= 4


# ---- topics


def topics_leg(partitions: int) -> Leg:
    """A topic with many partitions: until it is made, and until each has a leader in the metadata.

    Both count from the request.
    """

    def leg(stage: Stage, server: Contender) -> Figures:
        admin = AdminClient({"bootstrap.servers": server.address, "log_level": 2})
        admin.list_topics(timeout=30)  # connected
        topic = f"many-{next(stage.numbers)}"
        stage.settle()
        meter = Meter(server.pid)
        began = time.monotonic()
        (made,) = admin.create_topics([NewTopic(topic, partitions, 1)]).values()
        made.result(MADE_IN_S)
        created_s = time.monotonic() - began
        while led(admin, topic) < partitions:
            if time.monotonic() - began > MADE_IN_S:
                raise TimeoutError(f"{server.name}: not all of {partitions} partitions have one")
        visible_s = time.monotonic() - began
        stage.settle()
        cpu_ms = meter.read().cpu_s * 1e3
        delete_topic(server.address, topic)
        return {"created_s": created_s, "visible_s": visible_s, "cpu_ms": cpu_ms}

    return leg


def led(admin: AdminClient, topic: str) -> int:
    """How many partitions have a leader."""
    partitions = admin.list_topics(topic, timeout=MADE_IN_S).topics[topic].partitions
    return sum(each.leader >= 0 for each in partitions.values())


# ---- fetches that find nothing


def idle_leg(topic: str, partitions: int) -> Leg:
    """Fetches of many partitions that have nothing new, in a session and without one."""

    def leg(stage: Stage, server: Contender) -> Figures:
        found: Figures = {}
        stage.settle()
        meters = [Meter(server.pid)]
        for kind, (count, seconds) in poll_idle(
            server, topic, partitions, stage.seconds / 2, lambda: meters.append(Meter(server.pid))
        ).items():
            cpu_s = meters[1].cpu - meters.pop(0).cpu
            found[f"{kind}polls_per_s"] = count / seconds
            found[f"{kind}cpu_us_per_poll"] = cpu_s / count * 1e6
        return found

    return leg


def poll_idle(
    server: Contender,
    topic: str,
    partitions: int,
    seconds: float,
    done: Callable[[], object] = lambda: None,
) -> dict[str, tuple[int, float]]:
    """One fetch after the other, none of which waits: how many, in how many seconds.

    First in a session, which is what has no name, then without ("full_"); `done` after each.
    """
    found: dict[str, tuple[int, float]] = {}
    with Asker(server.address) as asker:
        opened = asker.request(fetch_request(topic, partitions, epoch=OPENING_EPOCH), FETCH_VERSION)
        expect(opened, server)
        if not opened.session_id:
            raise RuntimeError(f"{server.name} opened no session")
        for kind in ("", "full_"):
            began, count = time.monotonic(), 0
            while time.monotonic() - began < seconds:
                count += 1
                request = (
                    fetch_request(topic, partitions, epoch=FULL_EPOCH)
                    if kind
                    else fetch_request("", 0, session_id=opened.session_id, epoch=count)
                )
                expect(asker.request(request, FETCH_VERSION), server)
            found[kind] = count, time.monotonic() - began
            done()
    return found


def expect(answer: FetchResponse, server: Contender) -> None:
    if answer.error_code:
        raise RuntimeError(f"{server.name}: error {answer.error_code}")


def fetch_request(topic: str, partitions: int, *, session_id: int = 0, epoch: int) -> FetchRequest:
    wanted = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
        for number in range(partitions)
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=50 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic=topic, partitions=wanted)] if wanted else [],
        forgotten_topics_data=[],
    )


def warm_all(stage: Stage, server: Contender, seconds: float) -> None:
    """Let compilers and caches come to rest: all kinds of load."""
    create_topic(server.address, "warm", 4)
    for connections, window, share in ((50, 1, 0.25), (1, 1, 0.2), (4, 100, 0.1)):
        stage.drivers.load(
            server.address, "warm", partitions=4, connections=connections, window=window, size=100,
            warmup=0.0, seconds=seconds * share,
        )  # fmt: skip
    stage.drivers.rdkafka(
        "produce", server.address, "warm", settings=PRODUCER, size=1024, warmup=0.0,
        seconds=seconds * 0.25,
    )  # fmt: skip
    fill("warm", 1024, WARMING)(stage, server)
    stage.drivers.rdkafka(
        "consume", server.address, "warm", settings=CONSUMER, partitions=4, messages=WARMING
    )
    create_topic(server.address, "warm-through", 1)
    stage.drivers.rdkafka(
        "through", server.address, "warm-through", settings=THROUGH, size=100, rate=1_000,
        partitions=1, warmup=0.0, seconds=seconds * 0.2,
    )  # fmt: skip
