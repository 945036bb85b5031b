"""Requests about topics, settings, nodes and quotas; and malformed requests."""

from __future__ import annotations

import itertools
import socket
import struct
from typing import Any

from tools.kafka_answers.asking import SERVED, Questions, raw
from tools.kafka_answers.questions import BAD_NAMES, BIG, HUGE, LONG, T0, UNKNOWN, produce, topic
from tools.servers.probe import receive
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch

Spec = dict[str, Any]


def topics(a: Questions) -> None:
    numbers = itertools.count()

    def create(title: str, first: int = 0, only: bool = False, **more: Any) -> None:
        def words(_: int) -> Spec:
            one = topic(a, f"t{next(numbers)}") | more
            return {"topics": [one], "timeout_ms": 10_000, "validate_only": only}

        a.every(19, title, words, first=first)

    for count, copies in (
        (1, 1),
        (0, 1),
        (-1, 1),
        (-2, 1),
        (1, 0),
        (1, -1),
        (-1, -1),
        (1, 2),
        (1, -2),
    ):
        create(
            f"{count} partitions, {copies} replicas",
            num_partitions=count,
            replication_factor=copies,
        )
    for bad in BAD_NAMES:
        create(f"name {bad[:5]!r} {len(bad)}", name=bad[:-6] + a.run if len(bad) == 249 else bad)
    create("only validated", 1, only=True)
    create("only validated, exists", 1, only=True, name=a.named("a"))
    create("exists", name=a.named("a"))
    for n, rows in enumerate(
        (
            [(0, [1])],
            [(0, [1]), (1, [1])],
            [(0, [9])],
            [(1, [1])],
            [(0, [])],
            [(0, [1, 1])],
            [(0, [1]), (0, [1])],
            [(-1, [1])],
            [(0, [1]), (1, [])],
        )
    ):
        at = [{"partition_index": number, "broker_ids": ids} for number, ids in rows]
        create(f"assigned {n}", assignments=at, num_partitions=-1, replication_factor=-1)
        create(f"assigned {n} and counted", assignments=at)
    for name, value in (
        ("retention.ms", "1000"),
        ("retention.ms", "x"),
        ("retention.ms", None),
        ("retention.ms", ""),
        ("nonsense", "1"),
        ("", "1"),
        ("cleanup.policy", "no"),
        ("segment.bytes", "1"),
        ("min.insync.replicas", "0"),
        ("max.message.bytes", "-1"),
        ("compression.type", "zip"),
        ("cleanup.policy", "compact,delete"),
    ):
        create(f"{name}={value}", configs=[{"name": name, "value": value}])
    same = {"name": "retention.ms", "value": "1"}
    create("setting twice", configs=[same, same])
    a.every(19, "nothing", {"timeout_ms": 1000})
    twice = [topic(a, "twice"), topic(a, "twice"), topic(a, "twice2")]
    a.every(19, "twice", {"topics": twice, "timeout_ms": 1000, "validate_only": True}, first=1)
    _more_partitions(a)
    _deleted(a)


def _more_partitions(a: Questions) -> None:
    for count in (-1, 0, 1, 3):
        some = {"name": a.named("none"), "count": count, "assignments": None}
        a.every(37, f"to {count}", {"topics": [some], "timeout_ms": 1000, "validate_only": True})
    for n, rows2 in enumerate(([[1]], [], [[1], [1]], [[9]], [[]], [[1, 1]], [[1, 9]])):
        some = {
            "name": a.named("none"),
            "count": 2,
            "assignments": [{"broker_ids": r} for r in rows2],
        }
        a.every(37, f"assigned {n}", {"topics": [some], "timeout_ms": 1000, "validate_only": True})
    for bad in (a.named("no"), "", ".."):
        some = {"name": bad, "count": 2, "assignments": None}
        a.every(37, f"of {bad[:2]!r}", {"topics": [some, some], "timeout_ms": 1000})
        a.every(37, f"of one {bad[:2]!r}", {"topics": [some], "timeout_ms": 1000})
        a.every(20, f"of {bad[:2]!r}", {"topic_names": [bad], "timeout_ms": 1000})
        a.every(
            20, f"by id or name {bad[:2]!r}", {"topics": [{"name": bad}], "timeout_ms": 1}, first=6
        )
    a.every(37, "nothing", {"timeout_ms": 1000})
    a.every(20, "nothing", {"timeout_ms": 1000})


def _deleted(a: Questions) -> None:
    """Topics and records, some of them for real: last, in topics of their own."""
    a.every(20, "twice", {"topic_names": [a.named("no")] * 2, "timeout_ms": 1000})
    by_id = (
        [{"topic_id": UNKNOWN, "name": None}],
        [{"topic_id": bytes(16), "name": None}],
        [{"topic_id": a.ids[a.named("a")], "name": a.named("a")}],
        [{"topic_id": UNKNOWN, "name": None}] * 2,
    )
    for number, some in enumerate(by_id):
        a.every(20, f"by id {number}", {"topics": some, "timeout_ms": 1000}, first=6)

    def words(version: int) -> Spec:
        one = topic(a, f"gone{version}")
        made = a.request(19, 7, {"topics": [one], "timeout_ms": 5000})
        ids = [{"topic_id": made.topics[0].topic_id, "name": None}]
        return {"topics": ids, "topic_names": [one["name"]], "timeout_ms": 5000}

    a.every(20, "a topic", words)
    for word, number, offset in (
        ("a", 0, -2),
        ("a", 0, 5),
        ("a", 0, 1000),
        ("a", 9, 1),
        ("a", -1, 1),
        ("no", 0, 0),
        ("empty", 0, 0),
        ("empty", 0, -1),
        ("empty", 0, 1),
        ("a", 1, HUGE),
    ):
        part = {"partition_index": number, "offset": offset}
        some = [{"name": a.named(word), "partitions": [part]}]
        a.every(21, f"{word} {number} {offset}", {"topics": some, "timeout_ms": 3000})
    a.every(21, "nothing", {"timeout_ms": 1000})
    a.every(
        21,
        "everything",
        {
            "timeout_ms": 1000,
            "topics": [
                {"name": a.named("a"), "partitions": [{"partition_index": 0, "offset": -1}]}
            ],
        },
    )


def settings(a: Questions) -> None:
    a.every(32, "nothing", {})
    for kind, name in itertools.product(
        (-1, 0, 1, 2, 4, 8, 16, 32, 64), ("", "1", "9", "x", a.named("a"), a.named("no"))
    ):
        word = f"{kind} {name.split('-')[0]!r}"
        some = ["retention.ms", "nonsense", "retention.ms"]
        for keys in [some] if kind in {4, 8} else ([], some):  # a broker's own are its own
            one = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            a.every(32, f"{word} {keys[:1]}", {"resources": [one], "include_synonyms": True})
        for key, op in (
            (33, {}),
            (44, {"config_operation": 0}),
            (44, {"config_operation": 1}),
            (44, {"config_operation": 2}),
            (44, {"config_operation": 9}),
        ):
            for setting, value in (
                ("nonsense", "1"),
                ("", "1"),
                ("retention.ms", "x"),
                ("retention.ms", None),
            ):
                if kind == 4 and name in {"", "1"} and op.get("config_operation") == 1:
                    continue
                row = {"name": setting, "value": value} | op
                one = {"resource_type": kind, "resource_name": name, "configs": [row]}
                a.every(
                    key,
                    f"{word} {setting}={value} {list(op.values())}",
                    {"resources": [one], "validate_only": True},
                )
    _changed(a)


def _changed(a: Questions) -> None:
    """One topic's settings, really changed, and requests that cannot be repeated."""
    name = a.named("b")
    for setting, value in (
        ("retention.ms", "5000"),
        ("cleanup.policy", "compact"),
        ("segment.bytes", "1048576"),
        ("min.insync.replicas", "1"),
        ("flush.messages", "1"),
        ("unclean.leader.election.enable", "true"),
    ):
        for kind in (0, 2, 3, 1):
            row = {"name": setting, "value": value, "config_operation": kind}
            one = {"resource_type": 2, "resource_name": name, "configs": [row]}
            a.every(44, f"{setting} {kind}", {"resources": [one]})
            keys = {"configuration_keys": [setting], "resource_type": 2, "resource_name": name}
            a.every(32, f"{setting} after {kind}", {"resources": [keys], "include_synonyms": True})
    rows = [{"name": "retention.ms", "value": "1", "config_operation": 0}] * 2
    one = {"resource_type": 2, "resource_name": name, "configs": rows}
    a.every(44, "setting twice", {"resources": [one], "validate_only": True})
    a.every(
        33,
        "setting twice",
        {
            "validate_only": True,
            "resources": [one | {"configs": [{"name": "retention.ms", "value": "1"}] * 2}],
        },
    )
    a.every(
        44, "topic twice", {"resources": [one | {"configs": rows[:1]}] * 2, "validate_only": True}
    )
    a.every(44, "nothing", {})
    a.every(33, "nothing", {})
    whole = {"resource_type": 2, "resource_name": name, "configuration_keys": None}
    for flag in (False, True):
        a.every(32, f"whole topic {flag}", {"resources": [whole], "include_synonyms": flag})
    a.every(
        32, "topic twice", {"resources": [whole | {"configuration_keys": ["retention.ms"]}] * 2}
    )
    for kinds in ([], [2], [4], [8], [16], [32], [0], [99], [2, 2]):
        a.every(74, f"{kinds}", {"resource_types": kinds}) if kinds not in (
            [],
            [2],
            [2, 2],
        ) else None


def nodes(a: Questions) -> None:
    for flag, kind, fenced in itertools.product((False, True), (-1, 0, 1, 2, 3), (False, True)):
        words = {
            "include_cluster_authorized_operations": flag,
            "endpoint_type": kind,
            "include_fenced_brokers": fenced,
        }
        a.every(60, f"{flag} {kind} {fenced}", words)
    here, gone = a.named("a"), a.named("no")
    for n, some in enumerate(([(here, [0])], [(here, [9, -1])], [(gone, [0])], [(here, [])], [])):
        rows = [{"topic": name, "partitions": numbers} for name, numbers in some]
        a.every(35, f"some {n}", {"topics": rows})
        for kind in (0, 1, 2, -1):
            a.every(
                43,
                f"some {n} {kind}",
                {"topic_partitions": rows, "election_type": kind, "timeout_ms": 1000},
            )
        for path in ("/nowhere", "relative", ""):
            topics = [{"name": name, "partitions": numbers} for name, numbers in some]
            a.every(34, f"some {n} {path!r}", {"dirs": [{"path": path, "topics": topics}]})
        a.every(61, f"some {n}", {"topics": [{"name": t, "partition_indexes": p} for t, p in some]})
        topics = [{"name": t, "partition_indexes": p} for t, p in some]
        a.every(46, f"some {n}", {"topics": topics})
        for replicas in (None, [], [1], [9], [1, 1], [-1], [1, 9]):
            moves = [
                {"name": t, "partitions": [{"partition_index": i, "replicas": replicas} for i in p]}
                for t, p in some
            ]
            a.every(45, f"some {n} {replicas}", {"topics": moves, "timeout_ms": 1000})
    a.every(46, "all", {"topics": None})
    a.every(34, "nothing", {})
    transactions(a)
    for n, number in enumerate((bytes(16), UNKNOWN)):
        a.every(71, f"{n}", {"client_instance_id": number})
        for codec in (0, 1, 9):
            a.every(
                72,
                f"{n} {codec}",
                {"client_instance_id": number, "compression_type": codec, "metrics": b"x"},
            )
    _pages(a)


def transactions(a: Questions) -> None:
    for name in ("tx", "", LONG):
        a.every(65, f"one {name[:3]!r}", {"transactional_ids": [name]})
        for wait in (-1, 0, 1, 900_001, BIG) if name != LONG and not name else ():
            a.every(
                22, f"{name!r} {wait}", {"transactional_id": name, "transaction_timeout_ms": wait}
            )
    for wait, number, epoch in (
        (-1, -1, -1),
        (0, -1, -1),
        (1000, 5, 0),
        (1000, 5, -1),
        (1000, -1, 3),
    ):
        words = {
            "transactional_id": None,
            "transaction_timeout_ms": wait,
            "producer_id": number,
            "producer_epoch": epoch,
        }
        a.every(22, f"{wait} {number} {epoch}", words)
    a.every(65, "none", {})
    for states in ([], ["Ongoing"], ["nonsense", "Ongoing", "nonsense"], [""]):
        for more in (
            {},
            {"producer_id_filters": [5]},
            {"duration_filter": 5},
            {"transactional_id_pattern": "a.*"},
            {"transactional_id_pattern": "["},
            {"transactional_id_pattern": ""},
        ):
            a.every(66, f"{states} {more}", {"state_filters": states, **more})


def _pages(a: Questions) -> None:
    here, gone = a.named("a"), a.named("no")
    for names, limit, cursor in itertools.product(
        ([here], [gone], [here, gone, here], [""], ["a b"]),
        (-1, 0, 1, 2, 2000, BIG),
        (None, (here, 1), (here, 9), (here, -1), (gone, 0), ("", 0)),
    ):
        words2: Spec = {
            "topics": [{"name": name} for name in names],
            "response_partition_limit": limit,
        }
        words2["cursor"] = cursor and {"topic_name": cursor[0], "partition_index": cursor[1]}
        short = [name.split("-")[0] for name in (*names, *([cursor[0]] if cursor else ()))]
        a.every(75, f"{short} {limit} {cursor and cursor[1]}", words2)


def quotas(a: Questions) -> None:
    kinds = ("user", "client-id", "ip", "nonsense", "")
    for kind, match, name, strict in itertools.product(
        kinds, (0, 1, 2, 3, -1), (None, "x", ""), (False, True)
    ):
        one = {"entity_type": kind, "match_type": match, "match": name}
        a.every(48, f"{kind!r} {match} {name!r} {strict}", {"components": [one], "strict": strict})
    pair = [{"entity_type": "client-id", "match_type": 2, "match": None}] * 2
    a.every(48, "twice", {"components": pair})
    a.every(
        48,
        "user and ip",
        {"components": [pair[0] | {"entity_type": "user"}, pair[0] | {"entity_type": "ip"}]},
    )
    for kind, name in itertools.product(kinds, (None, "x", "", "1.2.3.4")):
        for bound, value in (
            ("producer_byte_rate", 1.0),
            ("producer_byte_rate", -1.0),
            ("producer_byte_rate", 0.0),
            ("producer_byte_rate", 1.5),
            ("nonsense", 1.0),
            ("request_percentage", 0.5),
            ("controller_mutation_rate", 0.5),
            ("connection_creation_rate", 5.0),
            ("producer_byte_rate", 1e300),
        ):
            entry = {
                "entity": [{"entity_type": kind, "entity_name": name}],
                "ops": [{"key": bound, "value": value}],
            }
            a.every(
                49,
                f"{kind!r} {name!r} {bound}={value}",
                {"entries": [entry], "validate_only": True},
            )
        entry = {"entity": [{"entity_type": kind, "entity_name": name}], "ops": []}
        a.every(49, f"{kind!r} {name!r} no change", {"entries": [entry], "validate_only": True})
    a.every(49, "nothing", {})
    a.every(49, "nobody", {"entries": [{"entity": [], "ops": []}], "validate_only": True})


def broken(a: Questions) -> None:
    """Requests that no codec of ours would write; the whole answer as bytes, or how it ended."""
    for name, version in itertools.product(
        ("", "a b", "-a", "a-", "ok", "ü", LONG), ("", "1 2", "1.0")
    ):
        words = {"client_software_name": name, "client_software_version": version}
        for spoken in (3, 4):
            response = a.request(18, spoken, words)
            a.note(
                f"ApiVersions: {name[:4]!r} {version!r}",
                spoken,
                response and [response.error_code, response.throttle_time_ms],
            )
    strange = [
        *((f"ApiVersions v{v}", raw(18, v, b"")) for v in (-1, 5, 32767)),
        *((f"key {k}", raw(k, 0, b"")) for k in (-1, 4, 7, 99, 32767)),
        *((f"{k} above", raw(k, 99, bytes(40))) for k in SERVED if k != 18),
        *((f"{k} below", raw(k, -1, bytes(40))) for k in SERVED if k != 18),
        *((f"{k} without a body", raw(k, 4, b"")) for k in (0, 1, 2, 3, 8, 9, 11)),
        ("bytes behind Metadata", raw(3, 5, b"\0\0\0\0\0" + b"zz")),
        ("huge count", raw(3, 5, b"\x7f\xff\xff\xff\0")),
        ("count -2", raw(3, 5, b"\xff\xff\xff\xfe\0")),
        ("flag 2", raw(3, 5, b"\0\0\0\0\2")),
        *(
            (
                f"client id {c and c[:3]} {len(c or b'')}",
                raw(12, 1, b"\0\0\0\0\0\0\0\0", client_id=c),
            )
            for c in (None, b"", b"x" * 32767, b"a b", "ü".encode(), b"\xff")
        ),
        ("unknown tags", raw(12, 4, b"\1\5\3abc" + b"\2g\0\0\0\0\2m\0" + b"\2\7\1x\x64\0")),
        ("tag twice", raw(12, 4, b"\0" + b"\2g\0\0\0\0\2m\0" + b"\2\7\1x\7\0")),
        ("size 0", struct.pack(">i", 0)),
        ("size -1", struct.pack(">i", -1)),
        ("size 7", struct.pack(">i", 7) + bytes(7)),
        ("size 2^31-1", struct.pack(">i", BIG)),
    ]
    host, port = a.address.rsplit(":", 1)
    for title, frame in strange:
        with socket.create_connection((host, int(port)), 2) as connection:
            response: object
            try:
                connection.sendall(frame)
                size = int.from_bytes(receive(connection, 4), "big")
                answer = receive(connection, size)
                response = answer.hex() if size < 60 else answer[:10].hex()
            except TimeoutError:
                response = "silence"
            except OSError:
                response = "closed"
        a.note(f"raw: {title}", 0, [response])


def in_order(a: Questions) -> None:
    """Requests of one connection, sent at once: who is answered, and whether the rest still is."""
    good = bytes(build_batch([Record(0, T0, b"k", b"v")]))
    name = a.named("c")
    wait: Spec = {"max_wait_ms": 300, "min_bytes": 1, "max_bytes": 1 << 20}
    at_end = {"topic": a.named("none"), "partitions": [{"partition_max_bytes": 100}]}
    quick: tuple[int, int, Spec] = (12, 3, {"group_id": a.named("nobody"), "member_id": "m"})
    written = produce(name, [(0, good)])
    runs: dict[str, list[tuple[int, int, Spec]]] = {
        "a long poll between": [quick, (1, 11, wait | {"topics": [at_end]}), quick],
        "writes between": [quick, (0, 9, written), quick, (0, 9, written), quick],
        "acks 0 between": [quick, (0, 9, written | {"acks": 0}), quick],
        "acks 0, refused": [quick, (0, 9, produce(name, [(0, b"xx")], acks=0)), quick],
        "acks 0, unknown topic": [(0, 9, produce(a.named("no!"), [(0, good)], acks=0)), quick],
        "a topic made between": [
            (19, 5, {"topics": [topic(a, "order")], "timeout_ms": 5000}),
            quick,
        ],
    }
    for title, requests in runs.items():
        a.note(f"in order: {title}", 0, a.at_once(requests))


FAMILIES = {
    "settings": settings,
    "nodes": nodes,
    "quotas": quotas,
    "topics": topics,
    "broken": broken,
    "in-order": in_order,
}
