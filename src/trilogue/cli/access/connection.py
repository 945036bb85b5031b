"""Where users and ACLs are changed: a server, the directory of a stopped one, a cluster."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeVar
from urllib.parse import quote, urlencode

import typer

from trilogue.cli.cluster import FAILED, HTTP_VARIABLE, UNREACHABLE, CommandError
from trilogue.cli.options import USAGE_ERROR, exit_with_error, settings_from

if TYPE_CHECKING:
    from trilogue.gateway.access_administration import AccessAdministration

ROOT: Final = "/trilogue"
DEFAULT_HTTP: Final = "127.0.0.1:8080"
STATUS_OK: Final = 300
Row = dict[str, Any]
T = TypeVar("T")

ServerHttpOption = Annotated[
    str,
    typer.Option(
        "--http",
        metavar="[https://]HOST:PORT",
        envvar=HTTP_VARIABLE,
        help="The HTTP listener of a server; by default the one in --config, or port 8080 here.",
    ),
]
HttpConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Credentials for it, in curl's form: `user`, `cacert`, … (DATA/clients/http.conf).",
    ),
]
OfflineOption = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="The data directory of a stopped server, instead of a server."
    ),
]
ClusterUrlOption = Annotated[
    str | None,
    typer.Option(
        "--cluster-url",
        metavar="URL",
        help="The database of a cluster (`serve --cluster`), instead of a server; --data is then "
        "the directory of one of its nodes, which may run.",
    ),
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Its first line is the password; otherwise it is prompted for, or read from stdin.",
    ),
]


class AccessAdmin(Protocol):
    """What the verbs need; each method returns rows for the user."""

    def list_users(self) -> list[Row]:
        """Return all users."""

    def describe_user(self, name: str) -> Row:
        """Return one user."""

    def create_user(self, name: str, password: str) -> Row:
        """Create a user."""

    def set_password(self, name: str, password: str) -> Row:
        """Give a user another password."""

    def delete_user(self, name: str) -> None:
        """Delete a user."""

    def revoke_tokens(self, name: str) -> None:
        """Revoke all tokens of a user."""

    def issue_token(self, name: str, lifetime_ms: int | None) -> Row:
        """Return a new token."""

    def list_acls(self, words: dict[str, str]) -> list[Row]:
        """Return the ACLs with these words."""

    def add_acls(self, rows: list[dict[str, str]]) -> list[Row]:
        """Add ACLs."""

    def remove_acls(self, rows: list[dict[str, str]]) -> list[Row]:
        """Remove ACLs; return those that existed."""


class OnlineAccess:
    """A server, over HTTP."""

    def __init__(self, where: str, options: dict[str, str], timeout_s: float) -> None:
        self._where = where
        self._options = options
        self._timeout_s = timeout_s

    def list_users(self) -> list[Row]:
        """Return all users."""
        rows: list[Row] = self._request("GET", "users")
        return rows

    def describe_user(self, name: str) -> Row:
        """Return one user."""
        row: Row = self._request("GET", _user(name))
        return row

    def create_user(self, name: str, password: str) -> Row:
        """Create a user."""
        row: Row = self._request("PUT", _user(name), {"password": password})
        return row

    def set_password(self, name: str, password: str) -> Row:
        """Give a user another password; the present one is of use if it is the user itself."""
        body = {"password": password}
        user, _, present = self._options.get("user", "").partition(":")
        if user == name:
            body["current"] = present
        row: Row = self._request("POST", f"{_user(name)}/password", body)
        return row

    def delete_user(self, name: str) -> None:
        """Delete a user."""
        self._request("DELETE", _user(name))

    def revoke_tokens(self, name: str) -> None:
        """Revoke all tokens of a user."""
        self._request("DELETE", f"{_user(name)}/tokens")

    def issue_token(self, name: str, lifetime_ms: int | None) -> Row:
        """Return a new token."""
        row: Row = self._request("POST", f"{_user(name)}/tokens", {"lifetimeMs": lifetime_ms})
        return row

    def list_acls(self, words: dict[str, str]) -> list[Row]:
        """Return the ACLs with these words."""
        rows: list[Row] = self._request("GET", f"acls?{urlencode(words)}")
        return rows

    def add_acls(self, rows: list[dict[str, str]]) -> list[Row]:
        """Add ACLs."""
        added: list[Row] = self._request("POST", "acls", rows)
        return added

    def remove_acls(self, rows: list[dict[str, str]]) -> list[Row]:
        """Remove ACLs; return those that existed."""
        removed: list[Row] = self._request("POST", "acls/remove", rows)
        return removed

    def _request(self, verb: str, path: str, body: object = None) -> Any:
        from trilogue.cli.http_client import HttpConnection, HttpError

        with HttpConnection(
            self._where, DEFAULT_HTTP, self._timeout_s, self._options
        ) as connection:
            try:
                status, answer = connection.request(verb, f"{ROOT}/{path}", body)
            except HttpError as lost:
                raise CommandError(
                    f"no server responds at {lost}; --http names its HTTP listener, --data the "
                    "directory of a stopped server",
                    UNREACHABLE,
                ) from lost
            if status < STATUS_OK:
                return answer
            reason = answer.get("reason", "") if isinstance(answer, dict) else str(answer)[:200]
            advice = "; --config FILE has credentials" if status == 401 else ""
            raise CommandError(f"{connection.where}: {reason or status}{advice}")


class OfflineAccess:
    """The data directory of a stopped server, or a cluster; each call opens and closes it."""

    def __init__(self, data: Path | None, cluster_url: str | None) -> None:
        if data is not None and not (data / "format").exists():
            raise CommandError(f"--data {data}: there is no data of a server", USAGE_ERROR)
        self._settings = settings_from(data=data, cluster=cluster_url)

    def list_users(self) -> list[Row]:
        """Return all users."""
        return self._run(lambda access: access.list_users())

    def describe_user(self, name: str) -> Row:
        """Return one user."""
        return self._run(lambda access: access.describe_user(name))

    def create_user(self, name: str, password: str) -> Row:
        """Create a user."""
        return self._wait(lambda access: access.create_user(name, password.encode()))

    def set_password(self, name: str, password: str) -> Row:
        """Give a user another password."""
        return self._wait(lambda access: access.set_password(name, password.encode()))

    def delete_user(self, name: str) -> None:
        """Delete a user."""
        self._wait(lambda access: access.delete_user(name))

    def revoke_tokens(self, name: str) -> None:
        """Revoke all tokens of a user."""
        self._wait(lambda access: access.revoke_tokens(name))

    def issue_token(self, name: str, lifetime_ms: int | None) -> Row:
        """Return a new token."""
        return self._run(lambda access: access.issue_token(name, lifetime_ms))

    def list_acls(self, words: dict[str, str]) -> list[Row]:
        """Return the ACLs with these words."""
        return self._run(lambda access: access.list_acls(words))

    def add_acls(self, rows: list[dict[str, str]]) -> list[Row]:
        """Add ACLs."""
        return self._wait(lambda access: access.add_acls(rows))

    def remove_acls(self, rows: list[dict[str, str]]) -> list[Row]:
        """Remove ACLs; return those that existed."""
        return self._wait(lambda access: access.remove_acls(rows))

    def _run(self, work: Callable[[AccessAdministration], T]) -> T:
        async def call(access: AccessAdministration) -> T:
            return work(access)

        return self._wait(call)

    def _wait(self, work: Callable[[AccessAdministration], Awaitable[T]]) -> T:
        from trilogue.broker.errors import BrokerError
        from trilogue.node.errors import StartError
        from trilogue.node.offline_access import open_offline_access

        async def run() -> T:
            async with open_offline_access(self._settings) as access:
                return await work(access.administration)

        try:
            return asyncio.run(run())
        except (BrokerError, StartError) as refusal:
            raise CommandError(str(refusal)) from refusal


def run_with_access(
    work: Callable[[AccessAdmin], T],
    *,
    http: str,
    config: Path | None,
    data: Path | None,
    cluster_url: str | None,
    timeout_s: float,
) -> T:
    """Run `work` online or offline and return its result; errors end the process."""
    from trilogue.cli.http_client import read_http_config

    try:
        if data is not None or cluster_url is not None:
            if config is not None:
                raise CommandError(
                    "--config is for a server, --data and --cluster-url are not", USAGE_ERROR
                )
            return work(OfflineAccess(data, cluster_url))
        options = {} if config is None else read_http_config(config)
        return work(OnlineAccess(http, options, timeout_s))
    except CommandError as refusal:
        exit_with_error(str(refusal), refusal.code)


def read_password(file: Path | None) -> str:
    """Return a new password: of a file, of a prompt, or of stdin; never of the command line."""
    if file is not None:
        try:
            lines = file.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no text"
            exit_with_error(f"--password-file {file}: {reason}", USAGE_ERROR)
        password = lines[0] if lines else ""
    elif sys.stdin.isatty():
        import getpass

        password = getpass.getpass("New password: ")
        if password != getpass.getpass("The same again: "):
            exit_with_error("the two passwords differ", FAILED)
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        exit_with_error(
            "a password is needed: from a prompt, stdin or --password-file", USAGE_ERROR
        )
    return password


def _user(name: str) -> str:
    return f"users/{quote(name, safe='')}"
