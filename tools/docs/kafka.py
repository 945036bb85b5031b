"""What the Kafka door serves, the topic settings it takes, the errors it tells: from the code."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from tools.docs.blocks import ROOT, table
from trilogue.broker.kafka_settings import BROKER, GROUPS
from trilogue.broker.setting import Setting, Standing
from trilogue.broker.settings_table import TABLE as SETTINGS
from trilogue.gateway.kafka.apis import TABLE as APIS
from trilogue.gateway.kafka.apis import Row
from trilogue.gateway.kafka.errors import CODES, DENIED

TESTS = "tests/gateway/kafka"
CLIENTS = "tests/conformance"
# Where clients that are not ours use each request; a test looks whether the files are there.
FOREIGN = {
    0: "test_kafka_produce.py",
    1: "test_kafka_matrix.py",
    2: "test_kafka_offsets.py",
    3: "test_kafka_admin.py",
    8: "test_kafka_groups.py",
    9: "test_kafka_groups.py",
    10: "test_kafka_groups.py",
    11: "test_kafka_groups.py",
    12: "test_kafka_groups.py",
    13: "test_kafka_groups.py",
    14: "test_kafka_groups.py",
    15: "test_kafka_family_group_admin.py",
    16: "test_kafka_family_group_admin.py",
    18: "test_kafka_matrix.py",
    19: "test_kafka_admin.py",
    20: "test_kafka_admin.py",
    21: "test_kafka_delete_records.py",
    22: "test_kafka_restart.py",
    23: "test_kafka_leader_epochs.py",
    29: "test_kafka_tools.py",
    30: "test_kafka_tools.py",
    31: "test_kafka_tools.py",
    32: "test_kafka_configs.py",
    33: "test_kafka_configs.py",
    34: "test_kafka_cluster.py",
    35: "test_kafka_cluster.py",
    37: "test_kafka_admin.py",
    42: "test_kafka_family_group_admin.py",
    43: "test_kafka_cluster.py",
    44: "test_kafka_configs.py",
    45: "test_kafka_cluster.py",
    46: "test_kafka_cluster.py",
    47: "test_kafka_family_group_admin.py",
    48: "test_kafka_quotas.py",
    49: "test_kafka_quotas.py",
    50: "test_kafka_tools.py",
    51: "test_kafka_tools.py",
    55: "test_kafka_tools.py",
    57: "test_kafka_tools.py",
    60: "test_kafka_cluster.py",
    61: "test_kafka_cluster.py",
    64: "test_kafka_tools.py",
    65: "test_kafka_cluster.py",
    66: "test_kafka_cluster.py",
    68: "test_kafka_consumer_groups.py",
    69: "test_kafka_consumer_groups.py",
    71: "test_kafka_cluster.py",
    72: "test_kafka_cluster.py",
    74: "test_kafka_settings.py",
    75: "test_kafka_cluster.py",
}
UNDER_ANOTHER_NAME = {"api_versions": "connection"}  # handler file -> file of its tests


def apis() -> str:
    """One row for each request of the table in gateway/kafka/apis.py."""
    head = ("key", "request", "served", "access", "tests", "foreign clients")
    return table(head, (_api(row) for row in APIS))


def _api(row: Row) -> tuple[object, ...]:
    room = inspect.getmodule(row.handler)
    assert room is not None
    stem = room.__name__.rpartition(".")[2]
    tests = f"{TESTS}/test_{UNDER_ANOTHER_NAME.get(stem, stem)}.py"
    foreign = f"{CLIENTS}/{FOREIGN[row.key]}"
    low, high = row.served
    return (
        row.key,
        row.name,
        f"{low}-{high}",
        f"{row.operation.value} on {row.resource.value}",
        _link(tests),
        _link(foreign),
    )


def _link(path: str) -> str:
    name = path.rpartition("/")[2]
    return f"[{name}](../../{path})" if (ROOT / path).exists() else f"{name} (missing)"


def topic_settings() -> str:
    """One row for each name in the table of broker/settings_table.py."""
    return _settings(SETTINGS.values())


def broker_settings() -> str:
    """One row for each name in the table of broker/kafka_settings.py."""
    return _settings(BROKER.values())


def group_settings() -> str:
    """One row for each setting that a consumer group may have."""
    return _settings(GROUPS.values())


def _settings(rows: Iterable[Setting]) -> str:
    order = list(Standing)
    return table(
        ("setting", "default", "", "meaning"),
        (
            (
                f"`{row.key}`",
                "none" if row.null else f"`{row.default}`" if row.default else "empty",
                row.standing.value,
                row.doc[0].upper() + row.doc[1:].removesuffix(".") + ".",
            )
            for row in sorted(rows, key=lambda row: order.index(row.standing))
        ),
    )


def errors() -> str:
    """One row for each reason that a room below the door may have to say no."""
    rows = [
        (_room(kind), f"`{kind.__name__}`", f"`{code.name}`", int(code), _first_line(kind))
        for kind, code in CODES.items()
        if kind.__module__.startswith("trilogue.")
    ]
    rows += [
        ("broker", f"`AccessDenied` ({kind.value})", f"`{code.name}`", int(code), "Not allowed.")
        for kind, code in DENIED.items()
    ]
    late = CODES[TimeoutError]
    rows.append(("", "time is over", f"`{late.name}`", int(late), "It goes on without the client."))
    return table(("room", "reason", "Kafka's error", "code", "meaning"), rows)


def _room(kind: type) -> str:
    return kind.__module__.split(".")[1]


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n\n")[0]
