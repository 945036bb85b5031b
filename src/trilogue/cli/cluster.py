"""Runs a verb against a cluster: connects first, and turns errors into one line and an exit code.

Verbs use the Kafka protocol, so they work with any Kafka cluster. Exit codes: 0 done, 1 refused or
failed, 2 wrong command line, 3 no server at the address, 130 interrupted.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeVar

import typer

from trilogue.cli.options import CLIENT_FILE, USAGE_ERROR, exit_with_error, find_config_file

if TYPE_CHECKING:
    from trilogue.client.kafka.client import KafkaClient
    from trilogue.client.kafka.cluster import KafkaCluster
    from trilogue.client.kafka.errors import KafkaError

FAILED: Final = 1
UNREACHABLE: Final = 3
INTERRUPTED: Final = 130
DEFAULT_SERVER: Final = "127.0.0.1:9092"
NEAR_AT_MOST: Final = 3
SERVER_VARIABLE: Final = "TRILOGUE_BOOTSTRAP"
CLIENT_CONFIG_VARIABLE: Final = "TRILOGUE_CLIENT_CONFIG"
HTTP_VARIABLE: Final = "TRILOGUE_HTTP"

ServerOption = Annotated[
    str,
    typer.Option(
        "--server",
        "-s",
        metavar="HOST:PORT",
        envvar=SERVER_VARIABLE,
        help="The Kafka listener of a server; several with commas.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for responses."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not prompt for confirmation.")]
DEFAULT_TIMEOUT: Final = 10.0

Result = TypeVar("Result")


class CommandError(Exception):
    """An error of a verb: one line for the user, and the exit code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


def run_with_cluster(
    server: str, timeout_s: float, work: Callable[[KafkaCluster], Awaitable[Result]]
) -> Result:
    """Run `work` with a connected cluster and return its result; errors end the process."""
    return _run(_with_cluster(server, timeout_s, work))


def run_with_client(
    server: str, timeout_s: float, work: Callable[[KafkaClient], Awaitable[Result]]
) -> Result:
    """Run `work` with a client that can produce and consume; as `run_with_cluster`."""
    return _run(_with_client(server, timeout_s, work))


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    from trilogue.client.errors import ClientError

    try:
        return asyncio.run(_until_terminated(work))
    except CommandError as refusal:
        exit_with_error(str(refusal), refusal.code)
    except ClientError as error:
        exit_with_error(describe_error(error), FAILED)
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(INTERRUPTED) from None


async def _until_terminated(work: Awaitable[Result]) -> Result:
    """Run work until done; SIGTERM cancels it as Ctrl-C does, so that it closes its resources."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    gc.freeze()
    gc.enable()  # a long run makes garbage
    return await work


async def _with_cluster(
    server: str, timeout_s: float, work: Callable[[KafkaCluster], Awaitable[Result]]
) -> Result:
    _, options = read_client_options()
    cluster = _checked(lambda: make_cluster(server, timeout_s, options))
    try:
        await _reach(cluster, server)
        return await work(cluster)
    finally:
        await cluster.close()


def make_cluster(server: str, timeout_s: float, options: dict[str, Any]) -> KafkaCluster:
    """Return a cluster that is not connected yet, with the options of a client's file."""
    from trilogue.client.kafka.cluster import KafkaCluster
    from trilogue.client.kafka.connection import IN_CLEAR

    security = IN_CLEAR
    if options:
        from trilogue.client.kafka.options import ClientOptions
        from trilogue.client.options import build_options

        security = build_options(ClientOptions, options).security
    return KafkaCluster(server, client_id="trilogue-cli", timeout_s=timeout_s, security=security)


async def _with_client(
    server: str, timeout_s: float, work: Callable[[KafkaClient], Awaitable[Result]]
) -> Result:
    from trilogue.client.kafka.client import KafkaClient

    _, options = read_client_options()
    options = {"client_id": "trilogue-cli", **options}
    made = _checked(lambda: KafkaClient(server, request_timeout_s=timeout_s, **options))
    async with made as client:
        await _reach(client.cluster, server)
        return await work(client)


def read_client_options() -> tuple[str, dict[str, Any]]:
    """Return the `bootstrap.servers` and the options of `client_file`, if there is one."""
    path = client_file()
    if path is None:
        return "", {}
    from trilogue.client.errors import ClientError
    from trilogue.client.kafka.client_config import read_client_config
    from trilogue.client.kafka.options import ClientOptions
    from trilogue.client.options import build_options

    try:
        servers, options = read_client_config(path)
        build_options(ClientOptions, options)  # so that the file is named if it is wrong
    except ClientError as error:
        reason = str(error) if str(path) in str(error) else f"{path}: {error}"
        raise CommandError(f"--config {reason}", USAGE_ERROR) from error
    return servers or "", options


def client_file() -> Path | None:
    """Return the file that the call names, or the user's, or the machine's, if there is one."""
    path = os.environ.get(CLIENT_CONFIG_VARIABLE)
    if path is None:
        return find_config_file(CLIENT_FILE)
    return Path(path) if path else None


def choose_server(server: str) -> str:
    """Return the server of a call without `--server`: that of the client's file goes first."""
    try:
        servers, _ = read_client_options()
    except CommandError as refusal:
        exit_with_error(str(refusal), refusal.code)
    return servers or server


def read_http_options(where: str) -> dict[str, str]:
    """Return the login and the authorities of `--config` for an HTTP listener, in curl's names.

    A password that the file sends over TLS only is not sent to an HTTP listener in clear.
    """
    _, options = read_client_options()
    found = {
        name: options[key]
        for name, key in (
            ("cacert", "ssl_ca_location"),
            ("cert", "ssl_certificate_location"),
            ("key", "ssl_key_location"),
        )
        if options.get(key)
    }
    is_encrypted = where.startswith("https://")
    is_sent_in_clear = options.get("security_protocol", "").lower() == "sasl_plaintext"
    if options.get("sasl_username") and (is_encrypted or is_sent_in_clear):
        found["user"] = f"{options['sasl_username']}:{options['sasl_password']}"
    return found


def _checked(make: Callable[[], Result]) -> Result:
    from trilogue.client.errors import ClientError

    try:
        return make()
    except ClientError as error:
        raise CommandError(f"--server: {error}", USAGE_ERROR) from error


async def _reach(cluster: KafkaCluster, server: str) -> None:
    """Connect once, without retries; CommandError if no server answers."""
    from trilogue.client.errors import ServerUnreachable

    try:
        await cluster.any_connection()
    except ServerUnreachable as lost:
        reason = str(lost.__cause__ or lost).removeprefix(f"{server}: ")
        text = (
            f"no Kafka server responds at {server}: {reason}; start one with `trilogue serve`, or "
            f"give another with --server HOST:PORT or {SERVER_VARIABLE}"
        )
        raise CommandError(text, UNREACHABLE) from lost


def describe_error(error: Exception) -> str:
    """Return the text of an error, with advice if there is any."""
    text = str(error)
    code = getattr(error, "error", None)
    advice = _ADVICE.get(getattr(code, "name", ""))
    return f"{text}; {advice}" if advice else text


_ADVICE: Final[Mapping[str, str]] = {
    "TOPIC_ALREADY_EXISTS": "`trilogue topics alter` changes it",
    "UNKNOWN_TOPIC_OR_PARTITION": "`trilogue topics list` lists them",
    "GROUP_ID_NOT_FOUND": "`trilogue groups list` lists them",
    "NON_EMPTY_GROUP": "stop its members first; `trilogue groups describe` names them",
    "GROUP_SUBSCRIBED_TO_TOPIC": "stop the members that read it first",
    "UNKNOWN_MEMBER_ID": "it has members: stop them first",
    "INVALID_REPLICATION_FACTOR": "there are not that many servers: leave out --replication",
    "TOPIC_AUTHORIZATION_FAILED": "the server does not permit it",
    "GROUP_AUTHORIZATION_FAILED": "the server does not permit it",
    "CLUSTER_AUTHORIZATION_FAILED": "the server does not permit it",
    "UNSUPPORTED_VERSION": "the server is too old for this",
}


def suggest_names(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean ...?" with similar names; "" if there are none."""
    from difflib import get_close_matches

    found = get_close_matches(name, list(names), NEAR_AT_MOST, 0.6)
    return f"; did you mean {' or '.join(found)}?" if found else ""


async def require_topics(cluster: KafkaCluster, wanted: Iterable[str]) -> None:
    """Raise CommandError for a topic that does not exist, with similar names."""
    from trilogue.client.kafka.admin.topics import TopicAdmin
    from trilogue.client.kafka.errors import KafkaError
    from trilogue.wire.kafka.errors import ErrorCode

    topics = TopicAdmin(cluster)
    for name, outcome in (await topics.describe_topics(wanted)).items():
        if not isinstance(outcome, KafkaError):
            continue
        if outcome.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise outcome
        await raise_unknown_topic(cluster, name)


async def require_partitions(
    cluster: KafkaCluster, topic: str, numbers: Iterable[int] | None
) -> list[int]:
    """Return all partitions of a topic, or the given ones; CommandError for one it has not."""
    present = await cluster.partitions(topic)
    if numbers is None:
        return present
    wanted = sorted(set(numbers))
    missing = [number for number in wanted if number not in present]
    if missing:
        raise CommandError(f"{topic} has the partitions 0 to {len(present) - 1}, not {missing[0]}")
    return wanted


async def raise_unknown_topic(cluster: KafkaCluster, name: str, more: str = "") -> NoReturn:
    """Raise CommandError for an unknown topic, with similar names or how to create it."""
    meant = suggest_names(name, await cluster.topic_names())
    meant = meant or f"; `trilogue topics create {name}` creates it"
    raise CommandError(f"no topic {name}{meant}{more}")


def report_outcomes(outcomes: Mapping[Any, KafkaError | None], detail: Callable[[Any], str]) -> int:
    """Print a line for each outcome; return the exit code."""
    code = 0
    for what, error in outcomes.items():
        if error is None:
            print(detail(what))
        else:
            code = FAILED
            print(f"trilogue: {describe_error(error)}", file=sys.stderr)
    return code


def confirm(question: str, *, yes: bool) -> None:
    """Prompt for confirmation on a terminal; elsewhere --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        exit_with_error(f"{question} Confirm with --yes.", USAGE_ERROR)
    if not typer.confirm(question):
        exit_with_error("nothing was done", FAILED)


def parse_pairs(given: Iterable[str] | None, option: str) -> dict[str, str]:
    """Return the KEY=VALUE pairs of a repeated option."""
    found: dict[str, str] = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            exit_with_error(f"{option} {text}: expected KEY=VALUE", USAGE_ERROR)
        found[key.strip()] = value
    return found
