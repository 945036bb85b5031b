"""`python -m tools.kafka_answers 3.9.1 4.3.1`: query Trilogue and real Kafkas, list differences.

`version=host:port` names a real one that runs already, `ours=host:port` a Trilogue. A line of the
output is a question, its versions, the field of the response, and the value of each server.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.server import start_server

from tools.kafka_answers import (
    admin_questions,
    group_questions,
    questions,
    streams_questions,
)
from tools.kafka_answers.asking import Answer, Questions
from tools.servers.kafka import RealKafka

FAMILIES = {
    name: family
    for module in (questions, group_questions, admin_questions, streams_questions)
    for name, family in module.FAMILIES.items()
}


def question_all(address: str, families: list[str]) -> Questions:
    """Send all requests to one server."""
    session = Questions(address, secrets.token_hex(3))
    questions.prepare(session)
    for family in families:
        FAMILIES[family](session)
        print(f"{address}: {family} asked", file=sys.stderr)
    return session


def differences(ours: Questions, real: Questions) -> Iterator[str]:
    """One line for each question, place and pair of values, with the versions it is true of."""
    found: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for (title, version), theirs in real.answers.items():
        mine = ours.answers.get((title, version))
        if mine is None:
            found[title, "", "not asked", ""].append(version)
            continue
        for path, values in _apart(mine, theirs).items():
            found[title, path, *values].append(version)
    for (title, path, mine_shown, values), versions in found.items():
        yield f"{title} v{_span(versions)} {path}: {mine_shown} / {values}"


def _apart(mine: Answer, theirs: Answer) -> dict[str, tuple[str, str]]:
    """Where two answers differ; an element that only one of them has is listed once."""
    found: dict[str, tuple[str, str]] = {}
    for path in {**theirs, **mine}:
        values = tuple(repr(each[path]) if path in each else "-" for each in (mine, theirs))
        if "-" in values:
            gone = theirs if values[1] == "-" else mine
            while not any(other.startswith(path.rpartition("[")[0]) for other in gone):
                path = path.rpartition("[")[0]  # noqa: PLW2901 - outwards to what both have
            path = path.rpartition("]")[0] + "]" if "]" in path else path  # noqa: PLW2901
            values = "has it" if values[0] != "-" else "-", "has it" if values[1] != "-" else "-"
        if values[0] != values[1]:
            found.setdefault(path, (values[0], values[1]))
    return found


def _span(versions: list[int]) -> str:
    whole = versions == list(range(versions[0], versions[-1] + 1)) and len(versions) > 1
    return f"{versions[0]}-{versions[-1]}" if whole else ",".join(map(str, versions))


@contextlib.contextmanager
def _server(wanted: str, root: Path) -> Iterator[str]:
    name, _, address = wanted.partition("=")
    if address:
        yield address
    elif name == "ours":
        with start_server(root / name) as server:
            yield server.kafka
    else:
        root.joinpath(name).mkdir()
        kafka = RealKafka(root / name, version=name).start()
        try:
            yield kafka.address
        finally:
            kafka.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("real", nargs="+", help="3.9.1, 4.3.1, or 3.9.1=host:port, ours=host:port")
    parser.add_argument("--only", nargs="*", choices=list(FAMILIES), default=list(FAMILIES))
    chosen = parser.parse_args()
    wanted = chosen.real
    if not any(each.startswith("ours") for each in wanted):
        wanted = ["ours", *wanted]
    wanted.sort(key=lambda each: not each.startswith("ours"))
    with tempfile.TemporaryDirectory() as root, contextlib.ExitStack() as stack:
        addresses = [stack.enter_context(_server(each, Path(root))) for each in wanted]
        with ThreadPoolExecutor() as pool:
            ours, *others = pool.map(question_all, addresses, [chosen.only] * len(addresses))
    for name, real in zip(wanted[1:], others, strict=True):
        lines = list(differences(ours, real))
        print(f"== {name}: {len(real.answers)} answers, {len(lines)} differences", *lines, sep="\n")


if __name__ == "__main__":
    main()
