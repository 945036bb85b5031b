"""Requests about groups: members of both kinds, positions, coordinators, administration."""

from __future__ import annotations

from typing import Any

from tools.kafka_answers.asking import SERVED, Questions
from tools.kafka_answers.questions import BIG, LONG, UNKNOWN, of_topic

Spec = dict[str, Any]
TEXT = "d" * 4096
PROTOCOLS = [{"name": "range", "metadata": b"x"}, {"name": "other", "metadata": b"y"}]


def coordinators(a: Questions) -> None:
    for kind in (-1, 0, 1, 3, 127):  # a 2 is about share groups, which not every real one has
        for word in ("g", "", LONG, "with blank"):
            name = f"{word[:4]!r} {kind}"
            a.every(10, f"one {name}", {"key": word, "key_type": kind})
            a.every(10, f"list {name}", {"coordinator_keys": [word], "key_type": kind}, first=4)
        many = ["g", "", "g", "h"]
        a.every(10, f"many {kind}", {"coordinator_keys": many, "key_type": kind}, first=4)
    a.every(10, "none", {"coordinator_keys": []}, first=4)
    for word in ("g", "", "a:b", f"g:{'A' * 22}:0"):
        a.every(10, f"share {word}", {"coordinator_keys": [word], "key_type": 2}, first=4)


def _commit(a: Questions, version: int, word: str, parts: list[Spec], topic: str = "a") -> Spec:
    topics = [of_topic(a, topic, version, 10) | {"partitions": parts}]
    return {"group_id": a.named(word) if word else "", "topics": topics}


def positions(a: Questions) -> None:
    def commit(
        title: str, parts: list[Spec], topic: str = "a", word: str = "p", **more: Any
    ) -> None:
        def words(version: int) -> Spec:
            return _commit(a, version, f"{word}{version}" if word else "", parts, topic) | more

        a.every(8, title, words, first=1)

    good = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
    commit("good", [good])
    for offset in (-2, -1, 0, 1 << 40):
        commit(f"offset {offset}", [good | {"committed_offset": offset, "partition_index": 1}])
    for number in (-1, 9, BIG):
        commit(f"partition {number}", [good | {"partition_index": number}])
    for note in (None, "", TEXT, TEXT + "d"):
        commit(f"note {len(note or ''), note is None}", [good | {"committed_metadata": note}])
    commit("twice", [good, good | {"committed_offset": 6}])
    commit("unknown topic", [good], "no")
    commit("no partitions", [])
    commit("no group", [good], word="")
    for number, member in ((-1, "m"), (0, ""), (1, ""), (5, "m"), (-2, ""), (BIG, "x")):
        more = {"generation_id_or_member_epoch": number, "member_id": member}
        commit(f"generation {number} of {member!r}", [good], **more)
        commit(f"of another group, generation {number} of {member!r}", [good], word="q", **more)
    commit("instance", [good], group_instance_id="i")
    for keep in (-2, 0, 1, BIG):
        commit(f"retention {keep}", [good], retention_time_ms=keep)
    for word, epoch in (("own", a.epoch), ("next", a.epoch + 1), ("-2", -2), ("last", BIG)):
        commit(f"epoch {word}", [good | {"committed_leader_epoch": epoch}])
    a.every(8, "no topics", lambda v: {"group_id": a.named(f"p{v}")}, first=1)
    _committed_offsets(a)


def _committed_offsets(a: Questions) -> None:
    a.request(
        8,
        7,
        _commit(
            a,
            7,
            "kept",
            [
                {"partition_index": 0, "committed_offset": 7, "committed_metadata": "note"},
                {"partition_index": 2, "committed_offset": 8, "committed_metadata": None},
            ],
        ),
    )

    def fetch(
        title: str, word: str, topics: list[tuple[str, list[int]]] | None, **more: Any
    ) -> None:
        def old(_: int) -> Spec:
            rows = [
                {"name": a.named(name), "partition_indexes": parts} for name, parts in topics or ()
            ]
            return {"group_id": word, "topics": None if topics is None else rows} | more

        def new(version: int) -> Spec:
            rows = [
                of_topic(a, name, version, 10) | {"partition_indexes": parts}
                for name, parts in topics or ()
            ]
            group = {"group_id": word, "topics": None if topics is None else rows}
            return {"groups": [group]} | more

        a.every(9, title, lambda v: old(v) if v < 8 else new(v), first=1)

    kept = a.named("kept")
    fetch("two", kept, [("a", [0, 2])])
    fetch("never set", kept, [("a", [1])])
    fetch("not there", kept, [("a", [-1, 9, BIG]), ("no", [0])])
    fetch("all", kept, None)
    fetch("none", kept, [])
    fetch("no partitions", kept, [("a", [])])
    fetch("twice", kept, [("a", [0, 0]), ("a", [0])])
    fetch("unknown group", a.named("nobody"), [("a", [0])])
    fetch("all of an unknown group", a.named("nobody"), None)
    fetch("no group", "", [("a", [0])])
    fetch("all of no group", "", None)
    fetch("stable", kept, [("a", [0])], require_stable=True)
    a.every(9, "no groups", {"groups": []}, first=8)
    pair = [{"group_id": kept, "topics": None}, {"group_id": a.named("nobody"), "topics": None}]
    a.every(9, "groups", {"groups": pair + pair[:1]}, first=8)
    for member, epoch in (("m", 0), ("", 0), ("m", -1), (None, 5), ("m", BIG)):
        group = {"group_id": kept, "topics": None, "member_id": member, "member_epoch": epoch}
        a.every(9, f"member {member} {epoch}", {"groups": [group]}, first=9)


def members(a: Questions) -> None:
    base: Spec = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 3_000,
        "protocol_type": "consumer",
        "protocols": PROTOCOLS,
    }

    def join(title: str, **more: Any) -> None:
        a.every(11, title, lambda v: {"group_id": a.named(f"{title}{v}")} | base | more)

    join("first")
    for time in (-1, 0, 5_999, 1_800_001, BIG):
        join(f"session {time}", session_timeout_ms=time)
    for time in (-1, 0):
        join(f"rebalance {time}", rebalance_timeout_ms=time)
    join("no group", group_id="")
    join("no protocols", protocols=[])
    join("no protocol type", protocol_type="")
    join("nothing to say", protocol_type="", protocols=[])
    join("stranger", member_id="stranger")
    join("instance", group_instance_id="i")
    join("bad instance", group_instance_id="a b")
    join("empty instance", group_instance_id="")
    join("stranger with instance", group_instance_id="i", member_id="stranger")
    join("protocol twice", protocols=[PROTOCOLS[0], PROTOCOLS[0]])
    for key, name in ((12, "heartbeat"), (14, "sync")):
        for member, number in (("", -1), ("m", 1), ("m", -1), ("", 0)):
            words = {"group_id": a.named("nobody"), "member_id": member, "generation_id": number}
            a.every(key, f"{name} of {member!r} {number}", words)
        a.every(key, f"{name} no group", {"group_id": "", "member_id": "m"})
        a.every(
            key,
            f"{name} instance",
            {"group_id": a.named("nobody"), "member_id": "m", "group_instance_id": "i"},
        )
    for group in (a.named("nobody"), ""):
        some = [{"member_id": "m"}, {"member_id": "", "group_instance_id": "i"}, {"member_id": "m"}]
        kind = "unknown" if group else "no"
        a.every(13, f"{kind} group, one", {"group_id": group, "member_id": "m"})
        a.every(13, f"{kind} group, some", {"group_id": group, "members": some}, first=3)
        a.every(13, f"{kind} group, none", {"group_id": group, "members": []}, first=3)
    for version in range(SERVED[11][0], SERVED[11][1] + 1):
        _life(a, version, base)


def _life(a: Questions, version: int, base: Spec) -> None:
    """One member from its first request to its last, with invalid requests between."""
    group = {"group_id": a.named(f"life{version}")}
    first = a.request(11, version, group | base)
    member = {"member_id": first.member_id}
    joined = a.request(11, version, group | base | member) if first.error_code == 79 else first
    a.note("JoinGroup: life", version, joined)
    client = group | member | {"generation_id": joined.generation_id}
    kind = {"protocol_type": "consumer", "protocol_name": "range"}
    steps: list[tuple[str, int, Spec]] = [
        ("join of another type", 11, group | base | {"protocol_type": "connect"}),
        (
            "join without a common protocol",
            11,
            group | base | {"protocols": [{"name": "third", "metadata": b""}]},
        ),
        ("heartbeat before", 12, client),
        ("sync of an older one", 14, client | {"generation_id": joined.generation_id - 1}),
        ("sync of another type", 14, client | kind | {"protocol_type": "connect"}),
        ("sync of another protocol", 14, client | kind | {"protocol_name": "third"}),
        (
            "sync",
            14,
            client
            | kind
            | {
                "assignments": [
                    member | {"assignment": b"abc"},
                    {"member_id": "x", "assignment": b"z"},
                ]
            },
        ),
        ("sync again", 14, client),
        ("heartbeat", 12, client),
        ("heartbeat of an older one", 12, client | {"generation_id": 0}),
        ("heartbeat of another", 12, client | {"member_id": "x"}),
        ("heartbeat of an instance", 12, client | {"group_instance_id": "i"}),
        ("described", 15, {"groups": [a.named(f"life{version}")]}),
        ("deleted while it is there", 42, {"groups_names": [a.named(f"life{version}")]}),
        ("joined again", 11, group | base | member),
        ("leave of another", 13, group | {"member_id": "x", "members": [{"member_id": "x"}]}),
        ("leave", 13, group | member | {"members": [member]}),
        ("leave again", 13, group | member | {"members": [member]}),
        ("described empty", 15, {"groups": [a.named(f"life{version}")]}),
        ("deleted", 42, {"groups_names": [a.named(f"life{version}")] * 2}),
    ]
    for title, key, words in steps:
        spoken = min(version, SERVED[key][1], a.range[key][1], 5 if key == 15 else 99)
        a.note(f"life: {title}", version, a.request(key, spoken, words))


def administration(a: Questions) -> None:
    kept = a.named("kept")
    names = [kept, a.named("nobody"), "", kept]
    for flag in (False, True):
        words = {"groups": names, "include_authorized_operations": flag}
        a.every(15, f"some {flag}", words)
        a.every(69, f"some {flag}", {"group_ids": names, "include_authorized_operations": flag})
    a.every(15, "none", {})
    a.every(69, "none", {})
    for states in (["Empty"], ["empty"], ["Nonsense"], ["Dead"], [""]):
        a.every(
            16,
            f"states {states}",
            {"states_filter": [*states, "Dead"], "types_filter": ["x"]},
            first=5,
        )
    for types in (["nonsense"], ["Share"], [""]):
        a.every(16, f"types {types}", {"types_filter": types}, first=5)
    a.every(42, "none", {})
    a.every(42, "unknown", {"groups_names": [a.named("nobody"), "", a.named("nobody")]})
    for group in (kept, a.named("nobody"), ""):
        for number in (1, 2, -1, 9):
            topics = [
                {"name": a.named(word), "partitions": [{"partition_index": number}]}
                for word in ("a", "no")
            ]
            word = group.split("-")[0] or "no group"
            a.every(47, f"{word} {number}", {"group_id": group, "topics": topics})
        a.every(47, f"{group.split('-')[0]} nothing", {"group_id": group})


def consumer_groups(a: Questions) -> None:
    name = a.named
    base: Spec = {
        "rebalance_timeout_ms": 5000,
        "subscribed_topic_names": [name("a")],
        "topic_partitions": [],
    }

    def beat(title: str, **more: Any) -> None:
        def words(version: int) -> Spec:
            known = {"member_id": f"m{version}"} if version else {}
            return {"group_id": name(f"beat {title}{version}")} | base | known | more

        a.every(68, title, words)

    beat("joins")
    beat("no group", group_id="")
    beat("blank group", group_id=" ")
    beat("no subscription", subscribed_topic_names=None)
    beat("subscribed to nothing", subscribed_topic_names=[])
    beat("unknown topic", subscribed_topic_names=[name("no")])
    beat("bad topic", subscribed_topic_names=["a b"])
    beat("no partitions told", topic_partitions=None)
    beat("has partitions", topic_partitions=[{"topic_id": UNKNOWN, "partitions": [0]}])
    for time in (-1, 0, -2):
        beat(f"rebalance {time}", rebalance_timeout_ms=time)
    for epoch in (-3, -2, -1, 1, BIG):
        beat(f"epoch {epoch}", member_epoch=epoch)
        beat(f"epoch {epoch}, named", member_epoch=epoch, member_id="who")
    for word in ("", "uniform", "range", "nonsense"):
        beat(f"assignor {word!r}", server_assignor=word)
    beat("empty instance", instance_id="")
    beat("instance", instance_id="i")
    beat("leaves as an instance", instance_id="i", member_epoch=-2)
    beat("empty rack", rack_id="")
    beat("rack", rack_id="r")
    for pattern in ("", "a.*", "[", "(?=a)"):
        beat(f"pattern {pattern!r}", subscribed_topic_regex=pattern, subscribed_topic_names=None)
    beat("empty member", member_id="")
    for version in range(min(SERVED[68][1], a.range[68][1]) + 1 if 68 in a.range else 0):
        _consumer(a, version, base)


def _consumer(a: Questions, version: int, base: Spec) -> None:
    group = a.named(f"cg{version}")
    first = a.request(
        68, version, {"group_id": group, "member_id": "who" if version else ""} | base
    )
    a.note("consumer: joined", version, first)
    client: Spec = {"group_id": group, "member_id": first.member_id}
    now = {"member_epoch": first.member_epoch}
    own = {"topic_id": a.ids[a.named("a")], "partitions": [0, 1, 2]}
    at = first.member_epoch
    classic = {"group_id": group, "member_id": first.member_id, "generation_id": at}
    offset = {"topics": [{"name": a.named("a"), "partitions": [{"partition_index": 0}]}]}
    steps: list[tuple[str, int, int, Spec]] = [
        ("beat", 68, version, client | now),
        ("told", 68, version, client | now | {"topic_partitions": [own]}),
        ("ahead", 68, version, client | {"member_epoch": at + 1}),
        ("behind", 68, version, client | {"member_epoch": at - 1}),
        ("described", 69, version, {"group_ids": [group]}),
        ("described as classic", 15, 5, {"groups": [group]}),
        *_consumer_positions(a, group, first.member_id, at),
        ("classic heartbeat", 12, 4, classic),
        ("classic sync", 14, 5, classic),
        ("classic leave", 13, 5, {"group_id": group, "members": [{"member_id": "x"}]}),
        ("deleted", 42, 2, {"groups_names": [group]}),
        ("offsets deleted", 47, 0, {"group_id": group} | offset),
        ("leaves", 68, version, client | {"member_epoch": -1}),
        ("leaves again", 68, version, client | {"member_epoch": -1}),
        ("described empty", 69, version, {"group_ids": [group]}),
        ("deleted empty", 42, 2, {"groups_names": [group]}),
    ]
    for title, key, spoken, words in steps:
        a.note(f"consumer: {title}", version, a.request(key, spoken, words))


def _consumer_positions(
    a: Questions, group: str, member: str, at: int
) -> list[tuple[str, int, int, Spec]]:
    good = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}]
    plain = _commit(a, 9, group.removesuffix(f"-{a.run}"), good)

    def commit(epoch: int) -> Spec:
        return plain | {"member_id": member, "generation_id_or_member_epoch": epoch}

    def fetch(client: str, epoch: int) -> Spec:
        one = {"group_id": group, "topics": None, "member_id": client, "member_epoch": epoch}
        return {"groups": [one]}

    return [
        ("commit", 8, 9, commit(at)),
        ("commit ahead", 8, 9, commit(at + 1)),
        ("commit ahead, old", 8, 8, commit(at + 1)),
        ("commit of nobody", 8, 9, plain),
        ("commit of a stranger", 8, 9, plain | {"member_id": "x"}),
        ("positions", 9, 9, fetch(member, at)),
        ("positions ahead", 9, 9, fetch(member, at + 1)),
        ("positions of a stranger", 9, 9, fetch("x", at)),
    ]


FAMILIES = {
    "coordinators": coordinators,
    "positions": positions,
    "members": members,
    "groups": administration,
    "consumer-groups": consumer_groups,
}
