"""`trilogue acls`: access control lists, in Kafka's words."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from trilogue.cli.access.connection import (
    ClusterUrlOption,
    HttpConfigOption,
    OfflineOption,
    ServerHttpOption,
    run_with_access,
)
from trilogue.cli.cluster import DEFAULT_TIMEOUT, JsonOption, TimeoutOption
from trilogue.cli.options import USAGE_ERROR, exit_with_error

app = typer.Typer(help="List, add and remove ACLs, in Kafka's words.")
app.info.no_args_is_help = True

COLUMNS: Final = (
    "principal",
    "host",
    "operation",
    "permissionType",
    "resourceType",
    "patternType",
    "resourceName",
)

PrincipalOption = Annotated[
    str, typer.Option("--principal", metavar="User:NAME", help="User:* is every user.")
]
OperationsOption = Annotated[
    list[str] | None,
    typer.Option("--operation", metavar="WORD", help="READ, WRITE, CREATE, …; repeat it for more."),
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="NAME", help="As Kafka names it, or TENANT/NAMESPACE/NAME; * is all."
    ),
]
GroupOption = Annotated[list[str] | None, typer.Option("--group", metavar="NAME", help="* is all.")]
TransactionOption = Annotated[
    list[str] | None, typer.Option("--transactional-id", metavar="ID", help="* is all.")
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
PatternOption = Annotated[
    str, typer.Option("--pattern", metavar="literal|prefixed", help="How names are compared.")
]
HostOption = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="The client's address; * is all.")
]
DenyOption = Annotated[bool, typer.Option("--deny", help="Deny: stronger than what allows.")]


@app.command("list")
def list_(
    *,
    principal: PrincipalOption = "",
    as_json: JsonOption = False,
    http: ServerHttpOption = "",
    config: HttpConfigOption = None,
    data: OfflineOption = None,
    cluster_url: ClusterUrlOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """List ACLs."""
    words = {"principal": principal} if principal else {}
    rows = run_with_access(
        lambda access: access.list_acls(words),
        http=http,
        config=config,
        data=data,
        cluster_url=cluster_url,
        timeout_s=timeout,
    )
    _print(rows, as_json=as_json)


@app.command("add")
def add(
    *,
    principal: PrincipalOption,
    operations: OperationsOption = None,
    topics: TopicOption = None,
    groups: GroupOption = None,
    transactions: TransactionOption = None,
    cluster: ClusterOption = False,
    pattern: PatternOption = "literal",
    host: HostOption = "*",
    deny: DenyOption = False,
    as_json: JsonOption = False,
    http: ServerHttpOption = "",
    config: HttpConfigOption = None,
    data: OfflineOption = None,
    cluster_url: ClusterUrlOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Allow (or with --deny deny) operations on resources to a principal."""
    resources = _name_resources(topics, groups, transactions, cluster=cluster)
    rows = _make_rows(resources, operations, principal, pattern=pattern, host=host, deny=deny)
    added = run_with_access(
        lambda access: access.add_acls(rows),
        http=http,
        config=config,
        data=data,
        cluster_url=cluster_url,
        timeout_s=timeout,
    )
    _print(added, as_json=as_json)


@app.command("remove")
def remove(
    *,
    principal: PrincipalOption,
    operations: OperationsOption = None,
    topics: TopicOption = None,
    groups: GroupOption = None,
    transactions: TransactionOption = None,
    cluster: ClusterOption = False,
    pattern: PatternOption = "literal",
    host: HostOption = "*",
    deny: DenyOption = False,
    as_json: JsonOption = False,
    http: ServerHttpOption = "",
    config: HttpConfigOption = None,
    data: OfflineOption = None,
    cluster_url: ClusterUrlOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Remove ACLs; prints those that existed."""
    resources = _name_resources(topics, groups, transactions, cluster=cluster)
    rows = _make_rows(resources, operations, principal, pattern=pattern, host=host, deny=deny)
    removed = run_with_access(
        lambda access: access.remove_acls(rows),
        http=http,
        config=config,
        data=data,
        cluster_url=cluster_url,
        timeout_s=timeout,
    )
    _print(removed, as_json=as_json)


def print_acls(rows: list[dict[str, Any]]) -> None:
    """Print ACLs as a table."""
    from trilogue.cli.tables import print_table

    heads = {"permissionType": "permission", "resourceType": "type", "patternType": "pattern"}
    columns = [heads.get(name, name) for name in COLUMNS]
    columns[-1] = "resource"
    shown = [dict(zip(columns, (row[name] for name in COLUMNS), strict=True)) for row in rows]
    print_table(shown, columns)


def _print(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    from trilogue.cli.tables import print_json

    if as_json:
        print_json(rows)
    else:
        print_acls(rows)


def _name_resources(
    topics: list[str] | None,
    groups: list[str] | None,
    transactions: list[str] | None,
    *,
    cluster: bool,
) -> list[tuple[str, str]]:
    resources = [("TOPIC", name) for name in topics or ()]
    resources += [("GROUP", name) for name in groups or ()]
    resources += [("TRANSACTIONAL_ID", name) for name in transactions or ()]
    if cluster:
        resources.append(("CLUSTER", "kafka-cluster"))
    if not resources:
        exit_with_error(
            "name resources: --topic, --group, --transactional-id or --cluster", USAGE_ERROR
        )
    return resources


def _make_rows(
    resources: list[tuple[str, str]],
    operations: list[str] | None,
    principal: str,
    *,
    pattern: str,
    host: str,
    deny: bool,
) -> list[dict[str, str]]:
    if not operations:
        exit_with_error("name operations: --operation READ", USAGE_ERROR)
    return [
        {
            "resourceType": kind,
            "patternType": "LITERAL" if kind == "CLUSTER" else pattern,
            "resourceName": name,
            "principal": principal,
            "host": host,
            "operation": operation,
            "permissionType": "DENY" if deny else "ALLOW",
        }
        for kind, name in resources
        for operation in operations
    ]
