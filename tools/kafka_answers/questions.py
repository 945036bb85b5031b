"""Requests of producers and consumers. A function sends one family of them to a server."""

from __future__ import annotations

import struct
from typing import Any

from tools.kafka_answers.asking import Questions
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch

BIG = (1 << 31) - 1
HUGE = (1 << 63) - 1
LONG = "x" * 250
BAD_NAMES = ("", ".", "..", "a b", "a/b", "ü", LONG, "x" * 249)
UNKNOWN = bytes(range(16))
T0 = 1_700_000_000_000


def prepare(a: Questions) -> None:
    """Topics that the questions speak of: `a` with records in partition 0, `b`, `empty`."""
    topics = [
        topic(a, "a", 3),
        topic(a, "b", 1),
        topic(a, "c", 3),
        topic(a, "empty", 1),
        topic(a, "none", 1),
    ]
    for each in topics:  # T0 is long ago
        each["configs"] = [{"name": "retention.ms", "value": "-1"}]
    squeezed = topic(a, "zstd", configs=[{"name": "compression.type", "value": "zstd"}])
    made = a.request(19, 7, {"topics": [*topics, squeezed], "timeout_ms": 10_000})
    a.ids.update({each.name: each.topic_id for each in made.topics})
    a.note("CreateTopics: prepared", 7, made)
    first = {"topics": [{"name": a.named("a")}]}
    while (found := a.request(3, 8, first).topics[0]).error_code or found.partitions[0].error_code:
        continue
    a.epoch = found.partitions[0].leader_epoch
    for start in (0, 10):
        records = [Record(n, T0 + 1000 * (start + n), b"k", b"v%d" % n) for n in range(10)]
        data = bytes(build_batch(records))
        for version in (8, 9):
            spec = produce(a.named("a"), [(0, data)])
            while (
                (response := a.request(0, version, spec))
                .responses[0]
                .partition_responses[0]
                .error_code
            ):
                continue
            a.note(f"Produce: prepared {start}", version, response)


def topic(a: Questions, word: str, count: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": a.named(word), "num_partitions": count, "replication_factor": 1} | more


def produce(
    name: str | bytes, parts: list[tuple[int, bytes | None]], **more: Any
) -> dict[str, Any]:
    of = {"topic_id": name} if isinstance(name, bytes) else {"name": name}
    rows = [{"index": number, "records": data} for number, data in parts]
    data = [of | {"partition_data": rows}]
    return {"acks": -1, "timeout_ms": 5000, "topic_data": data} | more


def of_topic(
    a: Questions, word: str, version: int, ids_from: int, field: str = "name"
) -> dict[str, Any]:
    """Name a topic as this version does, by name or by id."""
    if version < ids_from:
        return {field: a.named(word)}
    return {"topic_id": a.ids.get(a.named(word), UNKNOWN)}


def epochs_of(a: Questions) -> list[tuple[str, int]]:
    """Return epochs around the leader's own, which is another one at each server."""
    return [("-2", -2), ("-1", -1), ("own", a.epoch), ("next", a.epoch + 1), ("last", BIG)]


def metadata(a: Questions) -> None:
    name = a.named
    key = 3
    a.every(key, "none", {"topics": []}, first=1)
    for flags in (
        {},
        {"include_cluster_authorized_operations": True},
        {"include_topic_authorized_operations": True},
    ):
        words = {"topics": [{"name": name("a")}, {"name": name("b")}], **flags}
        a.every(key, f"two {list(flags)}", words)
    a.every(key, "twice", {"topics": [{"name": name("a")}, {"name": name("a")}]})
    quiet = {"allow_auto_topic_creation": False}
    a.every(key, "unknown, not made", {"topics": [{"name": name("no")}], **quiet}, first=4)
    for bad in BAD_NAMES[:-1]:
        for auto in (True, False):
            words = {"topics": [{"name": bad}], "allow_auto_topic_creation": auto}
            a.every(key, f"name {bad[:5]!r} {len(bad)} {auto}", words)
    ids = (
        {"topic_id": UNKNOWN},
        {"topic_id": a.ids[name("a")]},
        {},
        {"topic_id": a.ids[name("a")], "name": name("a")},
        {"topic_id": a.ids[name("a")], "name": name("b")},
        {"topic_id": UNKNOWN, "name": name("a")},
    )
    for number, each in enumerate(ids):
        one = {"name": None, **each}
        a.every(key, f"by id {number}", {"topics": [one]}, first=10)
        a.every(key, f"by id {number} and name", {"topics": [one, {"name": name("b")}]}, first=10)
    a.every(key, "made", lambda v: {"topics": [{"name": name(f"made{v}")}]})


def produced(a: Questions) -> None:
    name = a.named("b")
    good = bytes(build_batch([Record(0, T0, b"k", b"v")]))
    damaged = good[:-1] + bytes([good[-1] ^ 1])

    def all_of(
        title: str, parts: list[tuple[int, bytes | None]], word: str = "b", **more: Any
    ) -> None:
        def words(version: int) -> dict[str, Any]:
            client = a.ids.get(a.named(word), UNKNOWN) if version >= 13 else a.named(word)
            return produce(client, parts, **more)

        a.every(0, title, words, first=3)

    all_of("good", [(0, good)])
    all_of("null records", [(0, None)])
    all_of("empty records", [(0, b"")])
    all_of("nothing", [])
    a.every(0, "no topics", {"acks": -1, "timeout_ms": 5000})
    all_of("unknown topic", [(0, good)], "no!")
    all_of("unknown topic, bad bytes", [(0, b"xx")], "no!")
    all_of("wrong partition", [(9, good), (-1, good), (BIG, good)])
    all_of("one wrong, one damaged, one good", [(0, good), (1, good), (2, damaged)], "c")
    all_of("damaged", [(0, damaged)])
    for cut in (5, 12, 20, 60, len(good) - 1):
        all_of(f"cut at {cut}", [(0, good[:cut])])
    all_of("two batches", [(0, good + good)])
    for magic in (0, 1, 3, 9):
        all_of(f"magic {magic}", [(0, good[:16] + bytes([magic]) + good[17:])])
    for acks in (2, -2, 127, -128):
        all_of(f"acks {acks}", [(0, good)], acks=acks)
    all_of("acks 1", [(0, good)], acks=1)
    for wait in (0, -1, -(1 << 31)):
        all_of(f"timeout {wait}", [(0, good)], timeout_ms=wait)
    all_of("transactional id without a transaction", [(0, good)], transactional_id="tx")
    empty = struct.pack(">qiibIhiqqqhii", 0, 49, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0)
    all_of("a batch without records", [(0, empty)])
    for codec in (1, 2, 3, 4):
        data = bytes(build_batch([Record(n, T0, b"k", b"v" * 50) for n in range(5)], codec=codec))
        all_of(f"codec {codec}", [(0, data)])
    for pid, epoch, first in ((5, 0, 0), (5, 0, 5), (5, -1, 0), (-2, 0, 0), (9, 0, -1), (8, 3, 7)):
        data = bytes(
            build_batch(
                [Record(0, T0, b"k", b"v")],
                producer_id=pid,
                producer_epoch=epoch,
                base_sequence=first,
            )
        )
        a.every(0, f"producer {pid} {epoch} {first}", produce(name, [(0, data)]), first=12)
    for transactional, control in ((True, False), (False, True), (True, True)):
        data = bytes(
            build_batch(
                [Record(0, T0, b"k", b"v")],
                transactional=transactional,
                control=control,
                producer_id=77,
                producer_epoch=0,
                base_sequence=0,
            )
        )
        all_of(f"transactional {transactional} control {control}", [(0, data)])


def fetched(a: Questions) -> None:
    def all_of(
        title: str, parts: list[dict[str, Any]], word: str = "a", *, first: int = 4, **more: Any
    ) -> None:
        def words(version: int) -> dict[str, Any]:
            rows = [{"partition_max_bytes": 1 << 20, **part} for part in parts]
            topics = [of_topic(a, word, version, 13, "topic") | {"partitions": rows}]
            return {"max_bytes": 1 << 20, "topics": topics, "min_bytes": 1} | more

        a.every(1, title, words, first=first)

    old = [{"partition": 0, "fetch_offset": 3}]
    a.every(
        1,
        "old forms",
        {
            "min_bytes": 1,
            "topics": [
                {"topic": a.named("a"), "partitions": [{"partition_max_bytes": 1 << 20, **old[0]}]}
            ],
        },
    ) if a.range[1][0] == 0 else None
    for start in (-2, -1, 0, 5, 10, 19, 20, 21, 1000, HUGE):
        all_of(f"from {start}", [{"partition": 0, "fetch_offset": start}])
    for number in (-1, 1, 3, 9, BIG):
        all_of(f"partition {number}", [{"partition": number}])
    all_of("unknown topic", [{"partition": 0}], "no")
    all_of("twice", [{"partition": 0}, {"partition": 0, "fetch_offset": 10}])
    for size in (-1, 0, 1, 100, BIG):
        all_of(f"partition size {size}", [{"partition": 0, "partition_max_bytes": size}])
        all_of(f"size {size}", [{"partition": 0}], max_bytes=size)
        all_of(f"at least {size}", [{"partition": 0}], min_bytes=size)
    all_of("wait below zero", [{"partition": 1}], max_wait_ms=-1)
    for isolation in (0, 1, 2, 127, -1):
        all_of(f"isolation {isolation}", [{"partition": 0}], isolation_level=isolation)
    for word, epoch in epochs_of(a):
        all_of(f"epoch {word}", [{"partition": 0, "current_leader_epoch": epoch}], first=9)
        all_of(f"fetched epoch {word}", [{"partition": 0, "last_fetched_epoch": epoch}], first=12)
    for number, epoch in ((0, 0), (0, 1), (0, -2), (5, 0), (5, 1), (5, -1), (-1, 0), (BIG, 7)):
        session = {"session_id": number, "session_epoch": epoch}
        all_of(f"session {number} {epoch}", [{"partition": 0}], first=7, **session)
        a.every(1, f"session {number} {epoch} empty", {"max_bytes": 1 << 20, **session}, first=7)
    a.every(1, "nothing", {"max_bytes": 1 << 20}, first=4)
    all_of(
        "forgotten without session",
        [{"partition": 0}],
        first=7,
        forgotten_topics_data=[{"partitions": [1]}],
    )
    squeezed = bytes(build_batch([Record(0, T0, b"k", b"v")], codec=4))
    a.request(0, 9, produce(a.named("zstd"), [(0, squeezed)]))
    all_of("zstd", [{"partition": 0}], "zstd")
    all_of("rack", [{"partition": 0}], rack_id="r", first=11)
    all_of("cluster id", [{"partition": 0}], cluster_id="other", first=12)
    for client in (-2, -3, 5):
        all_of(f"replica {client}", [{"partition": 0}], replica_id=client)
    _incremental(a)


def _incremental(a: Questions) -> None:
    def part(version: int, word: str, *numbers: int, start: int = 0) -> dict[str, Any]:
        rows = [
            {"partition": n, "fetch_offset": start, "partition_max_bytes": 1 << 20} for n in numbers
        ]
        return of_topic(a, word, version, 13, "topic") | {"partitions": rows}

    low, high = max(7, a.range[1][0]), min(18, a.range[1][1])
    for version in range(low, high + 1):
        base: dict[str, Any] = {"max_bytes": 1 << 20, "min_bytes": 1, "max_wait_ms": 100}
        full = [part(version, "a", 0, 1, 9), part(version, "none", 0), part(version, "no", 0)]
        opened = a.request(1, version, base | {"session_epoch": 0, "topics": full})
        a.note("Fetch: opened", version, opened)
        session = getattr(opened, "session_id", 0)
        forgotten = of_topic(a, "none", version, 13, "topic") | {"partitions": [0, 4]}
        steps: list[tuple[int, dict[str, Any]]] = [
            (1, {}),
            (2, {"topics": [part(version, "a", 0, start=20)]}),
            (3, {}),
            (4, {"forgotten_topics_data": [forgotten]}),
            (4, {}),
            (6, {}),
            (5, {"topics": [part(version, "a", 2, start=4)]}),
            (6, {"topics": [part(version, "empty", 0)]}),
            (-1, {}),
            (7, {}),
        ]
        for number, (epoch, more) in enumerate(steps):
            spec = base | {"session_id": session, "session_epoch": epoch} | more
            a.note(f"Fetch: step {number}", version, a.request(1, version, spec))


def offsets_listed(a: Questions) -> None:
    def all_of(title: str, parts: list[dict[str, Any]], word: str = "a", **more: Any) -> None:
        words = {"replica_id": -1, "topics": [{"name": a.named(word), "partitions": parts}]} | more
        a.every(2, title, words)

    for time in (*range(-8, 1), T0 - 1, T0, T0 + 5500, T0 + 19_000, T0 + 19_001, HUGE, -HUGE):
        for word, number in (("a", 0), ("empty", 0)):
            parts = [{"partition_index": number, "timestamp": time, "max_num_offsets": 5}]
            all_of(f"{time} {word}", parts, word)
    _wrong_offset_requests(a)
    for count in (-1, 0, 1, BIG):
        all_of(f"count {count}", [{"timestamp": -1, "max_num_offsets": count}])
    for number in (-1, 9, BIG):
        all_of(f"partition {number}", [{"partition_index": number, "timestamp": -1}])
    all_of("unknown topic", [{"timestamp": -1}], "no")
    all_of("twice", [{"timestamp": -1}, {"timestamp": -2}])
    all_of("twice the same", [{"timestamp": -1}, {"timestamp": -1}])
    for word, epoch in epochs_of(a):
        all_of(f"epoch {word}", [{"timestamp": -1, "current_leader_epoch": epoch}])
    for isolation in (0, 1, 2, -1):
        all_of(f"isolation {isolation}", [{"timestamp": -1}], isolation_level=isolation)
    for client in (-3, -2, 0, 1, 5):
        all_of(f"replica {client}", [{"timestamp": -1}], replica_id=client)
    for wait in (-1, 0, BIG):
        all_of(f"timeout {wait}", [{"timestamp": -1}], timeout_ms=wait)


def _wrong_offset_requests(a: Questions) -> None:
    a.every(2, "nothing", {"replica_id": -1})
    for bad in BAD_NAMES:
        spec = {"topics": [{"name": bad, "partitions": [{"timestamp": -1}]}], "replica_id": -1}
        a.every(2, f"name {bad[:5]!r} {len(bad)}", spec)


def epochs(a: Questions) -> None:
    for now, current in epochs_of(a):
        for word, epoch in epochs_of(a):
            part = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
            words = {"topics": [{"topic": a.named("a"), "partitions": [part]}]}
            a.every(23, f"now {now}, of {word}", words)
    for word, number in (("a", -1), ("a", 9), ("no", 0), ("empty", 0)):
        part = {"partition": number, "leader_epoch": a.epoch}
        a.every(
            23, f"{word} {number}", {"topics": [{"topic": a.named(word), "partitions": [part]}]}
        )
    part = {"partition": 0, "leader_epoch": a.epoch}
    twice = {"partitions": [part, part], "topic": a.named("a")}
    a.every(23, "twice", {"topics": [twice]})
    a.every(23, "topic twice", {"topics": [twice, twice]})
    a.every(23, "nothing", {})
    for client in (-1, 0, 1, 7):
        a.every(23, f"replica {client}", {"replica_id": client, "topics": [twice]})


FAMILIES = {
    "metadata": metadata,
    "produce": produced,
    "fetch": fetched,
    "list-offsets": offsets_listed,
    "epochs": epochs,
}
