"""The Kafka gateway's APIs, topic settings and error codes: from the code."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from tools.docs.blocks import ROOT, table
from trilogue.broker.settings.broker_table import BROKER, GROUPS
from trilogue.broker.settings.setting import Effect, Setting
from trilogue.broker.settings.topic_table import TABLE as SETTINGS
from trilogue.gateway.kafka.api_table import ApiSpec
from trilogue.gateway.kafka.apis import TABLE as APIS
from trilogue.gateway.kafka.errors import CODES, DENIED_CODES

TESTS = "tests/gateway/kafka"
CLIENTS = "tests/conformance/kafka"
# The test in which clients of other projects send each request; ours, where it is our own.
LOGINS = "../../security/test_kafka_logins.py"
OURS = "../../client/kafka/test_batch_commits.py"
FOREIGN = {
    0: "test_produce.py",
    1: "test_matrix.py",
    2: "test_offsets.py",
    3: "test_admin.py",
    8: "groups/test_groups.py",
    9: "groups/test_groups.py",
    10: "groups/test_groups.py",
    11: "groups/test_groups.py",
    12: "groups/test_groups.py",
    13: "groups/test_groups.py",
    14: "groups/test_groups.py",
    15: "families/test_group_admin.py",
    16: "families/test_group_admin.py",
    17: LOGINS,
    18: "test_matrix.py",
    19: "test_admin.py",
    20: "test_admin.py",
    21: "test_delete_records.py",
    22: "test_restart.py",
    23: "test_leader_epochs.py",
    24: "test_transactions.py",
    25: "test_transactions.py",
    26: "test_transactions.py",
    27: "programs/test_tools.py",
    28: "test_transactions.py",
    29: "programs/test_tools.py",
    30: "programs/test_tools.py",
    31: "programs/test_tools.py",
    32: "test_configs.py",
    33: "test_configs.py",
    34: "test_cluster.py",
    35: "test_cluster.py",
    36: LOGINS,
    37: "test_admin.py",
    **dict.fromkeys(range(38, 42), "programs/test_delegation_tokens.py"),
    42: "families/test_group_admin.py",
    43: "test_cluster.py",
    44: "test_configs.py",
    45: "test_cluster.py",
    46: "test_cluster.py",
    47: "families/test_group_admin.py",
    48: "test_quotas.py",
    49: "test_quotas.py",
    50: "programs/test_tools.py",
    51: "programs/test_tools.py",
    55: "programs/test_tools.py",
    57: "programs/test_tools.py",
    60: "test_cluster.py",
    61: "test_cluster.py",
    64: "programs/test_tools.py",
    65: "test_cluster.py",
    66: "test_cluster.py",
    68: "groups/test_consumer_groups.py",
    69: "groups/test_consumer_groups.py",
    **dict.fromkeys((76, 77, 78, 79, 90, 91, 92), "groups/test_share_groups.py"),
    **dict.fromkeys((88, 89), "programs/test_streams_groups.py"),
    71: "test_cluster.py",
    72: "test_cluster.py",
    74: "test_settings.py",
    75: "test_cluster.py",
    20_001: OURS,
    20_002: OURS,
}
TRANSACTIONS = "transactions/test_transactions.py"
TESTED_BY = {
    "api_versions": "test_connection.py",
    "sasl": "../../security/test_kafka_logins.py",
    "add_offsets": TRANSACTIONS,
    "add_partitions": TRANSACTIONS,
    "end_txn": TRANSACTIONS,
    "txn_offset_commit": TRANSACTIONS,
    "write_markers": TRANSACTIONS,
    "acknowledge": "share/test_fetch.py",
    "describe_share_groups": "groups/test_share.py",
    "share_offsets": "groups/test_share.py",
}  # a handler's module whose tests lie elsewhere


def apis() -> str:
    """One row for each request of the table in gateway/kafka/apis.py."""
    head = ("key", "request", "served", "access", "tests", "foreign clients")
    return table(head, (_api(row) for row in APIS))


def _api(row: ApiSpec) -> tuple[object, ...]:
    room, _, stem = row.handler.partition(":")[0].rpartition(".")
    tests = f"{TESTS}/{room}/test_{stem}.py"
    if stem in TESTED_BY:
        tests = f"{TESTS}/{TESTED_BY[stem]}"
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
    """One row for each name in the table of broker/settings/topic_table.py."""
    return _settings(SETTINGS.values())


def broker_settings() -> str:
    """One row for each name in the table of broker/settings/broker_table.py."""
    return _settings(BROKER.values())


def group_settings() -> str:
    """One row for each setting that a consumer group may have."""
    return _settings(GROUPS.values())


def _settings(rows: Iterable[Setting]) -> str:
    order = list(Effect)
    return table(
        ("setting", "default", "", "meaning"),
        (
            (
                f"`{row.key}`",
                "none" if row.nullable else f"`{row.default}`" if row.default else "empty",
                row.effect.value,
                row.doc[0].upper() + row.doc[1:].removesuffix(".") + ".",
            )
            for row in sorted(rows, key=lambda row: order.index(row.effect))
        ),
    )


def errors() -> str:
    """One row for each exception of the rooms below the gateway."""
    rows = [
        (_room(kind), f"`{kind.__name__}`", f"`{code.name}`", int(code), _first_line(kind))
        for kind, code in CODES.items()
        if kind.__module__.startswith("trilogue.")
    ]
    rows += [
        ("broker", f"`AccessDenied` ({kind.value})", f"`{code.name}`", int(code), "Not allowed.")
        for kind, code in DENIED_CODES.items()
    ]
    late = CODES[TimeoutError]
    rows.append(
        ("", "timeout", f"`{late.name}`", int(late), "The operation continues after the response.")
    )
    return table(("room", "reason", "Kafka's error", "code", "meaning"), rows)


def _room(kind: type) -> str:
    return kind.__module__.split(".")[1]


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n\n")[0]
