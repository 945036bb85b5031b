"""`trilogue users`: the users of a cluster, their passwords and tokens."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trilogue.cli.access.connection import (
    AccessAdmin,
    ClusterUrlOption,
    HttpConfigOption,
    OfflineOption,
    PasswordFileOption,
    ServerHttpOption,
    read_password,
    run_with_access,
)
from trilogue.cli.cluster import DEFAULT_TIMEOUT, JsonOption, TimeoutOption, YesOption, confirm
from trilogue.cli.options import USAGE_ERROR, exit_with_error

app = typer.Typer(help="Create, list, describe and delete users; passwords and tokens.")
app.info.no_args_is_help = True

NameArgument = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@app.command("list")
def list_(
    *,
    as_json: JsonOption = False,
    http: ServerHttpOption = "",
    config: HttpConfigOption = None,
    data: OfflineOption = None,
    cluster_url: ClusterUrlOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """List users, and by which methods they can log in."""
    rows = run_with_access(
        lambda access: access.list_users(),
        http=http,
        config=config,
        data=data,
        cluster_url=cluster_url,
        timeout_s=timeout,
    )
    _print(rows, as_json=as_json)


@app.command("describe")
def describe(
    name: NameArgument,
    *,
    as_json: JsonOption = False,
    http: ServerHttpOption = "",
    config: HttpConfigOption = None,
    data: OfflineOption = None,
    cluster_url: ClusterUrlOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Describe a user: methods, last change, revoked tokens, and the ACLs of the user."""

    def work(access: AccessAdmin) -> dict[str, Any]:
        row = access.describe_user(name)
        return {**row, "acls": access.list_acls({"principal": f"User:{name}"})}

    row = run_with_access(
        work, http=http, config=config, data=data, cluster_url=cluster_url, timeout_s=timeout
    )
    if as_json:
        _print_json(row)
        return
    _print([row], as_json=False)
    if row["acls"]:
        from trilogue.cli.access.acls import print_acls

        print()
        print_acls(row["acls"])


@app.command("create")
def create(
    name: NameArgument,
    *,
    password_file: PasswordFileOption = None,
    as_json: JsonOption = False,
    http: ServerHttpOption = "",
    config: HttpConfigOption = None,
    data: OfflineOption = None,
    cluster_url: ClusterUrlOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Create a user with a password."""
    password = read_password(password_file)
    row = run_with_access(
        lambda access: access.create_user(name, password),
        http=http,
        config=config,
        data=data,
        cluster_url=cluster_url,
        timeout_s=timeout,
    )
    _report(f"created user {name}", row, as_json=as_json)


@app.command("set-password")
def set_password(
    name: NameArgument,
    *,
    password_file: PasswordFileOption = None,
    as_json: JsonOption = False,
    http: ServerHttpOption = "",
    config: HttpConfigOption = None,
    data: OfflineOption = None,
    cluster_url: ClusterUrlOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Give a user another password; sessions with the old one end."""
    password = read_password(password_file)
    row = run_with_access(
        lambda access: access.set_password(name, password),
        http=http,
        config=config,
        data=data,
        cluster_url=cluster_url,
        timeout_s=timeout,
    )
    _report(f"user {name} has another password", row, as_json=as_json)


@app.command("delete")
def delete(
    name: NameArgument,
    *,
    yes: YesOption = False,
    http: ServerHttpOption = "",
    config: HttpConfigOption = None,
    data: OfflineOption = None,
    cluster_url: ClusterUrlOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Delete a user, after a confirmation: its sessions end, its tokens are refused."""
    confirm(f"Delete the user {name}?", yes=yes)
    run_with_access(
        lambda access: access.delete_user(name),
        http=http,
        config=config,
        data=data,
        cluster_url=cluster_url,
        timeout_s=timeout,
    )
    print(f"deleted user {name}")


@app.command("token")
def token(
    name: NameArgument,
    *,
    expires: Annotated[
        str, typer.Option("--expires", metavar="DURATION", help="How long it is valid: 12h, 30d.")
    ] = "",
    as_json: JsonOption = False,
    http: ServerHttpOption = "",
    config: HttpConfigOption = None,
    data: OfflineOption = None,
    cluster_url: ClusterUrlOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Print a new token of a user; it is stored nowhere."""
    lifetime_ms = _parse_duration(expires) if expires else None
    row = run_with_access(
        lambda access: access.issue_token(name, lifetime_ms),
        http=http,
        config=config,
        data=data,
        cluster_url=cluster_url,
        timeout_s=timeout,
    )
    _report(row["token"], row, as_json=as_json)


@app.command("revoke-tokens")
def revoke_tokens(
    name: NameArgument,
    *,
    http: ServerHttpOption = "",
    config: HttpConfigOption = None,
    data: OfflineOption = None,
    cluster_url: ClusterUrlOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Refuse all tokens of a user that were issued until now."""
    run_with_access(
        lambda access: access.revoke_tokens(name),
        http=http,
        config=config,
        data=data,
        cluster_url=cluster_url,
        timeout_s=timeout,
    )
    print(f"the tokens of {name} are refused")


def _parse_duration(text: str) -> int:
    from trilogue.broker.settings.values import InvalidValue, Kind, parse_value

    try:
        value = parse_value(Kind.DURATION, text)
    except InvalidValue as error:
        exit_with_error(f"--expires {text}: {error}", USAGE_ERROR)
    assert isinstance(value, int)
    return value


def _print(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        _print_json(rows)
        return
    from trilogue.cli.tables import print_table, spell_time

    shown = [
        {
            "user": row["name"],
            "methods": row["methods"],
            "changed": spell_time(row["changedMs"]),
            "tokens_revoked": spell_time(row["tokensFromMs"] or -1),
        }
        for row in rows
    ]
    print_table(shown, ("user", "methods", "changed", "tokens_revoked"))


def _print_json(value: object) -> None:
    from trilogue.cli.tables import print_json

    print_json(value)


def _report(sentence: str, row: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        _print_json(row)
    else:
        print(sentence)
