"""How verbs ask a cluster: where it is, one connection first, and what to do when something fails.

All of it goes through the Kafka door, so a real Kafka will do as well. Exit codes: 0 done, 1 it was
refused or failed, 2 the command line is wrong, 3 nobody answers there, 130 interrupted.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeVar

import typer

from trilogue.cli.options import USAGE_ERROR, leave

if TYPE_CHECKING:
    from trilogue.client.kafka.client import KafkaClient
    from trilogue.client.kafka.cluster import KafkaCluster
    from trilogue.client.kafka.errors import KafkaError

FAILED: Final = 1
NOBODY_ANSWERS: Final = 3
INTERRUPTED: Final = 130
DEFAULT_SERVER: Final = "127.0.0.1:9092"
NEAR_AT_MOST: Final = 3
SERVER_VARIABLE: Final = "TRILOGUE_BOOTSTRAP"
HTTP_VARIABLE: Final = "TRILOGUE_HTTP"

ServerOption = Annotated[
    str,
    typer.Option(
        "--server",
        "-s",
        metavar="HOST:PORT",
        envvar=SERVER_VARIABLE,
        help="The Kafka door of a server, several with commas.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for answers."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether that is meant.")]
DEFAULT_TIMEOUT: Final = 10.0

Result = TypeVar("Result")


class Refusal(Exception):
    """Why a verb ends, in one line that says what to do."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


def ask(server: str, timeout_s: float, work: Callable[[KafkaCluster], Awaitable[Result]]) -> Result:
    """Do something with a cluster; whatever goes wrong ends in one line and an exit code."""
    return _run(_with_cluster(server, timeout_s, work))


def talk(server: str, timeout_s: float, work: Callable[[KafkaClient], Awaitable[Result]]) -> Result:
    """The same for who produces or consumes."""
    return _run(_with_client(server, timeout_s, work))


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    from trilogue.client.errors import ClientError

    try:
        return asyncio.run(_until_told(work))
    except Refusal as refusal:
        leave(str(refusal), refusal.code)
    except ClientError as problem:
        leave(explained(problem), FAILED)
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(INTERRUPTED) from None


async def _until_told(work: Awaitable[Result]) -> Result:
    """SIGTERM ends it as Ctrl-C does: what was begun is closed in order."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    gc.freeze()
    gc.enable()  # this may go on for long
    return await work


async def _with_cluster(
    server: str, timeout_s: float, work: Callable[[KafkaCluster], Awaitable[Result]]
) -> Result:
    from trilogue.client.kafka.cluster import KafkaCluster

    cluster = _checked(lambda: KafkaCluster(server, client_id="trilogue-cli", timeout_s=timeout_s))
    try:
        await _reach(cluster, server)
        return await work(cluster)
    finally:
        await cluster.close()


async def _with_client(
    server: str, timeout_s: float, work: Callable[[KafkaClient], Awaitable[Result]]
) -> Result:
    from trilogue.client.kafka.client import KafkaClient

    made = _checked(
        lambda: KafkaClient(server, client_id="trilogue-cli", request_timeout_s=timeout_s)
    )
    async with made as client:
        await _reach(client.cluster, server)
        return await work(client)


def _checked(make: Callable[[], Result]) -> Result:
    from trilogue.client.errors import ClientError

    try:
        return make()
    except ClientError as problem:
        raise Refusal(f"--server: {problem}", USAGE_ERROR) from problem


async def _reach(cluster: KafkaCluster, server: str) -> None:
    """Whether anybody answers, before anything is tried again and again."""
    from trilogue.client.errors import ConnectionLost

    try:
        await cluster.any_connection()
    except ConnectionLost as lost:
        text = (
            f"nobody answers as a Kafka server at {server} ({lost}); start one with `trilogue "
            f"serve`, or name another with --server HOST:PORT or {SERVER_VARIABLE}"
        )
        raise Refusal(text, NOBODY_ANSWERS) from lost


def explained(problem: Exception) -> str:
    """An error as people are told it, with what may be done about it."""
    text = str(problem)
    code = getattr(problem, "error", None)
    advice = _ADVICE.get(getattr(code, "name", ""))
    return f"{text}; {advice}" if advice else text


_ADVICE: Final[Mapping[str, str]] = {
    "TOPIC_ALREADY_EXISTS": "`trilogue topics alter` changes it",
    "UNKNOWN_TOPIC_OR_PARTITION": "`trilogue topics list` names what is there",
    "GROUP_ID_NOT_FOUND": "`trilogue groups list` names what is there",
    "NON_EMPTY_GROUP": "stop its members first; `trilogue groups describe` names them",
    "GROUP_SUBSCRIBED_TO_TOPIC": "stop the members that read it first",
    "UNKNOWN_MEMBER_ID": "it has members: stop them first",
    "INVALID_REPLICATION_FACTOR": "there are not that many servers; leave --replication away",
    "TOPIC_AUTHORIZATION_FAILED": "the server does not let you",
    "GROUP_AUTHORIZATION_FAILED": "the server does not let you",
    "CLUSTER_AUTHORIZATION_FAILED": "the server does not let you",
    "UNSUPPORTED_VERSION": "the server is too old for this",
}


def near(name: str, names: Iterable[str]) -> str:
    """What somebody may have meant, as an end of a sentence; "" where nothing is near."""
    from difflib import get_close_matches

    found = get_close_matches(name, list(names), NEAR_AT_MOST, 0.6)
    return f"; did you mean {' or '.join(found)}?" if found else ""


async def known_topics(cluster: KafkaCluster, wanted: Iterable[str]) -> None:
    """Refuse topics that are not there, with the names that are near."""
    from trilogue.client.kafka.admin.topics import Topics
    from trilogue.client.kafka.errors import KafkaError
    from trilogue.wire.kafka.errors import ErrorCode

    topics = Topics(cluster)
    for name, outcome in (await topics.describe_topics(wanted)).items():
        if not isinstance(outcome, KafkaError):
            continue
        if outcome.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise outcome
        await refuse_topic(cluster, name)


async def refuse_topic(cluster: KafkaCluster, name: str, more: str = "") -> NoReturn:
    """There is no such topic: say which are near, or how to make it."""
    there = await cluster.names()
    meant = near(name, there)
    if not meant:
        meant = f"; `trilogue topics create {name}` makes it" if there else "; there are none yet"
    raise Refusal(f"there is no topic {name}{meant}{more}")


def each_done(outcomes: Mapping[Any, KafkaError | None], said: Callable[[Any], str]) -> int:
    """Say of each what was done or why not; the exit code."""
    code = 0
    for what, problem in outcomes.items():
        if problem is None:
            print(said(what))
        else:
            code = FAILED
            print(f"trilogue: {explained(problem)}", file=sys.stderr)
    return code


def sure(question: str, *, yes: bool) -> None:
    """Ask whether it is meant, on a terminal; elsewhere --yes has to say so."""
    if yes:
        return
    if not sys.stdin.isatty():
        leave(f"{question} Say so with --yes.", USAGE_ERROR)
    if not typer.confirm(question):
        leave("nothing was done", FAILED)


def pairs(given: Iterable[str] | None, option: str) -> dict[str, str]:
    """KEY=VALUE of a repeated option."""
    found: dict[str, str] = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            leave(f"{option} {text}: expected KEY=VALUE", USAGE_ERROR)
        found[key.strip()] = value
    return found
