"""`trilogue transactions`: lists, describes and aborts transactions of any Kafka cluster.

A transaction has a transactional id, and in a Trilogue server a TxnID too, by which Pulsar's
clients know it: (slot of the id, epoch << 48 | producer id). The transactional id of one that a
Pulsar client began is `__pulsar_txn_` and the producer id, and its epoch counts as 0. Both names
are accepted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trilogue.cli.cluster import (
    DEFAULT_SERVER,
    DEFAULT_TIMEOUT,
    CommandError,
    JsonOption,
    ServerOption,
    TimeoutOption,
    YesOption,
    confirm,
    report_outcomes,
    run_with_cluster,
    suggest_names,
)

if TYPE_CHECKING:
    from trilogue.client.kafka.admin.model import TransactionDescription
    from trilogue.client.kafka.admin.transactions import TransactionAdmin
    from trilogue.client.kafka.cluster import KafkaCluster

app = typer.Typer(help="List, describe and abort transactions.")
app.info.no_args_is_help = True

ONGOING: Final = "Ongoing"
PULSAR_PREFIX: Final = "__pulsar_txn_"
EPOCH_SHIFT: Final = 48
TXN_ID: Final = re.compile(r"\(?(?:\d{1,5}|\*)[,:](\d{1,20})\)?")

NamesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="ID...", help="Transactional ids, or TxnIDs: `0,42`.", show_default=False
    ),
]


@app.command("list")
def list_(
    pattern: Annotated[
        str | None, typer.Argument(help="Only ids with this in them, or like `app-*`.")
    ] = None,
    *,
    states: Annotated[
        list[str] | None, typer.Option("--state", help="Only in this state: Ongoing, Empty.")
    ] = None,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """List transactional ids and the states of their transactions."""
    from trilogue.cli.tables import print_json, print_table
    from trilogue.cli.topics.report import matching

    async def work(cluster: KafkaCluster) -> list[dict[str, Any]]:
        found = await _admin(cluster).list_transactions(states=states or ())
        wanted = matching([one.name for one in found], pattern)
        return [
            {"transaction": one.name, "state": one.state, "producer_id": one.producer_id}
            for one in found
            if one.name in wanted
        ]

    rows = run_with_cluster(server, timeout, work)
    if as_json:
        print_json(rows)
    else:
        print_table(rows, ("transaction", "state", "producer_id"))


@app.command("describe")
def describe(
    names: NamesArgument,
    *,
    as_json: JsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Describe transactions: state, producer, begin, partitions."""
    from trilogue.cli.tables import print_json, print_table

    async def work(cluster: KafkaCluster) -> list[dict[str, Any]]:
        found = await _find_all(cluster, names)
        slots = await _count_slots(cluster)
        return [_row(one, slots) for one in found]

    rows = run_with_cluster(server, timeout, work)
    if as_json:
        print_json(rows)
        return
    for row in rows:
        print(f"{row['transaction']}  {row['state']}  TxnID {row['txn_id']}")
        print(
            f"  producer {row['producer_id']} epoch {row['producer_epoch']}"
            f"  timeout {row['timeout_ms']:,} ms  begun {row['begun'] or '-'}"
        )
        print_table(row["partitions"], ("topic", "partition"), indent="  ")


@app.command("abort")
def abort(
    names: NamesArgument,
    *,
    yes: YesOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Abort ongoing transactions, after a confirmation: their messages are never committed."""

    async def check(cluster: KafkaCluster) -> list[str]:
        found = await _find_all(cluster, names)
        ended = [one.name for one in found if one.state != ONGOING]
        if ended:
            raise CommandError(f"{', '.join(ended)}: no transaction is ongoing")
        return [one.name for one in found]

    async def work(cluster: KafkaCluster) -> int:
        outcomes = await _admin(cluster).abort_transactions(await check(cluster))
        return report_outcomes(outcomes, lambda name: f"aborted {name}")

    if not yes:
        wanted = run_with_cluster(server, timeout, check)
        confirm(f"Abort {', '.join(wanted)}?", yes=False)
    raise typer.Exit(run_with_cluster(server, timeout, work))


def _admin(cluster: KafkaCluster) -> TransactionAdmin:
    from trilogue.client.kafka.admin.transactions import TransactionAdmin

    return TransactionAdmin(cluster)


async def _find_all(cluster: KafkaCluster, names: list[str]) -> list[TransactionDescription]:
    """Return the transactions of these names; CommandError for an unknown one."""
    from trilogue.client.kafka.errors import KafkaError
    from trilogue.wire.kafka.errors import ErrorCode

    admin = _admin(cluster)
    wanted = [await _resolve(admin, name) for name in names]
    found = []
    for name, outcome in (await admin.describe_transactions(wanted)).items():
        if isinstance(outcome, KafkaError):
            if outcome.error is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise outcome
            known = [one.name for one in await admin.list_transactions()]
            raise CommandError(f"no transaction {name}{suggest_names(name, known)}")
        found.append(outcome)
    return found


async def _resolve(admin: TransactionAdmin, name: str) -> str:
    """Return the transactional id for a TxnID; other names are ids already."""
    match = TXN_ID.fullmatch(name)
    if match is None:
        return name
    producer_id = int(match[1]) & (1 << EPOCH_SHIFT) - 1
    found = await admin.list_transactions(producer_ids=[producer_id])
    if not found:
        raise CommandError(f"no transaction {name}; `trilogue transactions list` lists them")
    return found[0].name


async def _count_slots(cluster: KafkaCluster) -> int | None:
    """Return how many slots the nodes have; None if not all of them answer with theirs."""
    from trilogue.cli.node_status import find_settings, split_items
    from trilogue.client.errors import ClientError
    from trilogue.client.kafka.admin.nodes import NodeAdmin

    nodes = (await NodeAdmin(cluster).describe_cluster()).nodes
    try:
        values = [await find_settings(cluster, node.id) for node in nodes]
    except (ClientError, CommandError):
        return 1 if len(nodes) <= 1 else None
    slots = sorted(int(each) for value in values for each in split_items(value["slots"]))
    return len(slots) if slots and slots == list(range(len(slots))) else None


def _row(one: TransactionDescription, slots: int | None) -> dict[str, Any]:
    """Return a transaction as it is printed; its coordinator is `*` where slots are not known."""
    from trilogue.cli.tables import spell_time
    from trilogue.meta.state import name_slot

    most = "*" if slots is None else name_slot(one.name, slots)
    epoch = 0 if one.name.startswith(PULSAR_PREFIX) else one.producer_epoch
    return {
        "transaction": one.name,
        "state": one.state,
        "txn_id": f"({most},{epoch << EPOCH_SHIFT | one.producer_id})",
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "begun": None if one.started_ms < 0 else spell_time(one.started_ms),
        "partitions": [{"topic": each.topic, "partition": each.number} for each in one.partitions],
    }
