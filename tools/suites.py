"""What the runs of other projects' suites share: programs that may hang, outcomes, the table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
INSIDE = "SUITES_INSIDE"

Results = dict[str, dict[str, object]]


def enter_own_network(module: str) -> None:
    """Go on in a network where the ports that a suite wants are free (as root): there this module
    is run once more, and this process ends with its exit code."""
    if INSIDE not in os.environ:
        command = ["unshare", "--net", sys.executable, "-m", module, *sys.argv[1:]]
        done = subprocess.run(command, env={**os.environ, INSIDE: "1"}, check=False)
        sys.exit(done.returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def run(
    command: list[str], folder: Path, seconds: float, more: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Exit code and output; -1 where time ran out."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            ["env", "--default-signal=INT", *command],  # a background job of a shell ignores it
            cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True, env={**os.environ, **(more or {})},
        )  # fmt: skip
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            code = -1
        output.seek(0)
        return code, output.read().decode(errors="replace")


def note(
    results: Results, test: str, result: str, seconds: float, output: str, *, telling: Sequence[str]
) -> None:
    """The result of a test; for a failed one with the most informative line."""
    found: dict[str, object] = {"result": result, "seconds": round(seconds, 1)}
    if result != PASSED:
        found["why"] = reason(output, telling)
        found["output"] = output[-8000:]
    results[test] = found
    print(f"{result:8}{seconds:7.1f} s  {test}  {found.get('why', '')}", flush=True)


def reason(output: str, telling: Sequence[str]) -> str:
    """What the first of the patterns finds first, else the last line."""
    for pattern in telling:
        if found := re.findall(pattern, output, re.MULTILINE):
            return re.sub(r"\s+", " ", found[0])[:200]
    return output.strip().split("\n")[-1][:200]


def report(ours: Results, real: Results, of: str, left_out: Callable[[str], str]) -> None:
    """The counts, and the table of what failed on ours or on the real one, which is named `of`."""
    ours, real = ({t: r for t, r in each.items() if not left_out(t)} for each in (ours, real))
    for name, results in (("Trilogue", ours), (of, real)):
        counts = {
            kind: sum(result["result"] == kind for result in results.values())
            for kind in (PASSED, FAILED, SKIPPED)
        }
        print(f"{name}: {counts}")
    print(f"\n| test | Trilogue | {of} | why |\n|---|---|---|---|")
    for test, result in sorted(ours.items()):
        there = real.get(test, {"result": "-"})
        if FAILED in {result["result"], there["result"]}:
            why = str(result.get("why") or there.get("why", "")).replace("|", "\\|")
            print(f"| `{test}` | {result['result']} | {there['result']} | {why} |")
