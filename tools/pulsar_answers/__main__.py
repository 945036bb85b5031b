"""Call Java's administration client at a real Pulsar and at Trilogue; write both answers.

    python -m tools.pulsar_answers               write docs/reference/pulsar-admin.md
    python -m tools.pulsar_answers --print       print the differences only

The calls are the lines of calls.txt; the commands of `pulsar-admin` make them. Those that Java's
client has and no line names are listed too. Needs `make jars`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.server import start_server

from tools.docs.blocks import ROOT, table
from tools.pulsar_answers.compare import Answer, compare, show
from tools.pulsar_answers.reasons import reason
from tools.servers.java import jars
from tools.servers.pulsar import VERSION, RealPulsar

HERE = Path(__file__).parent
PAGE = ROOT / "docs" / "reference" / "pulsar-admin.md"
SHORT = {
    "$T": "persistent://acme/calls/topic",
    "$Q": "persistent://acme/policies/topic",
    "$P": "acme/policies",
}
TIMEOUT = 900.0
CELL_MAX = 100
MARK = "answer "
"""Before each answer: the libraries write to standard output, too."""


@dataclass(frozen=True)
class Call:
    """One line of calls.txt, and the heading that it is under."""

    group: str
    text: str

    @property
    def line(self) -> str:
        """The line as Java's client gets it."""
        return re.sub(r"\$[TQP]", lambda found: SHORT[found[0]], self.text)

    @property
    def signature(self) -> str:
        """The method, and how many parameters it has."""
        name, *words = self.text.split(" ")
        return f"{name} {len(words)}"


def read_calls() -> Iterator[Call]:
    """Yield the lines of calls.txt."""
    group = ""
    for line in (HERE / "calls.txt").read_text().splitlines():
        if line.startswith("# "):
            group = line[2:]
        elif line:
            yield Call(group, line)


def _run(*arguments: str, lines: str = "") -> list[str]:
    classes = f"{jars(f'pulsar-{VERSION}')}/*"
    command = ["java", "-Xmx400m", "-Dlog4j2.level=OFF", "-cp", classes, str(HERE / "Calls.java")]
    done = subprocess.run(
        [*command, *arguments], input=lines, capture_output=True, text=True, timeout=TIMEOUT,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout.splitlines()


def call_all(calls: list[Call], http: str, broker: str) -> list[Answer]:
    """Make the calls, in order, at one server."""
    lines = _run(http, broker, lines="".join(f"{call.line}\n" for call in calls))
    return [json.loads(line[len(MARK) :]) for line in lines if line.startswith(MARK)]


def without_line(calls: list[Call]) -> list[str]:
    """Return the methods of Java's client that no line calls."""
    called = {call.signature for call in calls}
    return sorted({each.split(" ")[0] for each in _run() if each not in called})


@contextlib.contextmanager
def _real(root: Path) -> Iterator[tuple[str, str]]:
    pulsar = RealPulsar(root / "real").start()
    try:
        yield pulsar.http, f"pulsar://{pulsar.address}"
    finally:
        pulsar.stop()


@contextlib.contextmanager
def _ours(root: Path) -> Iterator[tuple[str, str]]:
    with start_server(root / "ours") as server:
        yield f"http://{server.doors['http']}", f"pulsar://{server.doors['pulsar']}"


HEAD = f"""# Pulsar: answers to the calls of administration, beside those of Pulsar {VERSION}

The commands of `pulsar-admin` make these calls of Java's administration client
(`org.apache.pulsar.client.admin`), which was run with the same lines against a Pulsar {VERSION} and
a Trilogue, both with their defaults and without logins; `pulsar-admin` itself is not on Maven
Central. `python -m tools.pulsar_answers` writes this page.

Answers are the same when both are done with the same value, or fail with the same status. Times,
addresses, ids and sizes are not compared; of statistics and settings only the names of fields are.
`$T` is `{SHORT["$T"]}`, `$Q` `{SHORT["$Q"]}`, `$P` `{SHORT["$P"]}`. The lines are called in this
order.
"""


def page(calls: list[Call], real: list[Answer], ours: list[Answer], missing: list[str]) -> str:
    """Return the page: a table for each group of calls."""
    rows: dict[str, list[tuple[str, ...]]] = {}
    same = 0
    for call, there, here in zip(calls, real, ours, strict=True):
        differs = bool(compare(call.text, there, here))
        same += not differs
        answer = _cell(show(here)) if differs else "the same"
        why = reason(call.text) if differs else ""
        row = (_cell(call.text), _cell(show(there)), answer, why)
        rows.setdefault(call.group, []).append(row)
    counts = f"{len(calls)} calls, of which {same} have the same answer."
    tables = (
        f"## {group}\n\n{table(('call', f'Pulsar {VERSION}', 'Trilogue', 'why'), each)}\n"
        for group, each in rows.items()
    )
    left = ", ".join(f"`{each}`" for each in missing)
    return "\n".join([HEAD, counts, "", *tables, "## Not called", "", left, ""])


def _cell(text: str) -> str:
    short = text if len(text) <= CELL_MAX else f"{text[:CELL_MAX]} …"
    return "`" + short.replace("`", "'") + "`"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print", action="store_true", help="print the differences only")
    parser.add_argument("--keep", type=Path, help="a file for all answers, in JSON")
    chosen = parser.parse_args()
    calls = list(read_calls())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with _real(root) as (http, broker):
            real = call_all(calls, http, broker)
        with _ours(root) as (http, broker):
            ours = call_all(calls, http, broker)
    if chosen.keep:
        rows = zip([call.line for call in calls], real, ours, strict=True)
        chosen.keep.write_text(json.dumps(list(rows), indent=1))
    missing = without_line(calls)
    if chosen.print:
        for call, there, here in zip(calls, real, ours, strict=True):
            if difference := compare(call.text, there, here):
                why = reason(call.text) or "no reason is known"
                print(f"{call.line}  [{difference}: {why}]\n    {show(there)}\n    {show(here)}")
        print(*missing, sep="\n")
        return 0
    PAGE.write_text(page(calls, real, ours, missing))
    return 0


if __name__ == "__main__":
    sys.exit(main())
