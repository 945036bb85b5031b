"""Run the suites of Pulsar's own clients on Trilogue or on a real Pulsar, test by test.

    git clone https://github.com/apache/pulsar-client-go DIR      # and so on
    python -m tools.pulsar_suites go DIR --server trilogue --out ours.json
    python -m tools.pulsar_suites go DIR --server pulsar --out real.json
    python -m tools.pulsar_suites report --ours ours.json --real real.json

Suites: `python` (apache/pulsar-client-python, needs fastavro and testcontainers beside
pulsar-client), `go` (apache/pulsar-client-go), `rust` (streamnative/pulsar-rs, needs protoc). They
want their server on ports 6650 and 8080 of localhost: the run makes itself a network of its own
(`unshare --net`, as root), so that nothing else is in the way. What needs security or transactions
is left out; nothing of the suites is changed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server import start_server

from tools.servers.pulsar import RealPulsar

SECURITY = re.compile(
    r"TLS|HTTPS|tls_|[Aa]uth(?!or)|OAuth|oauth|CAError|Basic|Certificate|certificate"
)
TRANSACTIONS = re.compile(r"Txn|Transaction|transaction")
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
PYTHON_FILES = [
    "custom_logger_test", "debug_logger_test", "interrupted_test", "pulsar_test", "schema_test",
    "table_view_test", "reader_test", "asyncio_test",
]  # fmt: skip
TENANTS = {"public": ["public/default", "public/default-2"], "private": ["private/auth"]}

Results = dict[str, dict[str, object]]


@contextmanager
def server(name: str) -> Iterator[str]:
    """One on the ports that the suites want, with the tenants that their scripts make."""
    with tempfile.TemporaryDirectory() as folder:
        if name == "pulsar":
            settings = {"webServicePort": 8080}
            real = RealPulsar(Path(folder), port=6650, heap="1g", direct="2g", settings=settings)
            real.http_port = 8080
            real.start()
            stop = real.kill9
        else:
            ours = start_server(
                Path(folder) / "data",
                listen={"pulsar": "127.0.0.1:6650", "http": "127.0.0.1:8080"},
            )
            stop = ours.kill9
        try:
            make_tenants()
            yield name
        finally:
            if name != "pulsar":
                shutil.copy(ours.log_file, "/tmp/pulsar-suites-server.log")
            stop()


def make_tenants() -> None:
    for tenant, namespaces in TENANTS.items():
        put(f"tenants/{tenant}", {"adminRoles": [], "allowedClusters": ["standalone"]})
        for namespace in namespaces:
            put(f"namespaces/{namespace}", {"replication_clusters": ["standalone"]})


def put(path: str, body: object) -> None:
    request = urllib.request.Request(
        f"http://localhost:8080/admin/v2/{path}", json.dumps(body).encode(), method="PUT"
    )
    request.add_header("Content-Type", "application/json")
    try:
        urllib.request.urlopen(request, timeout=20).close()
    except urllib.error.HTTPError as error:
        if error.code != 409:
            print(f"{path}: {error.code} {error.read()[:200]!r}", file=sys.stderr)


def run(command: list[str], folder: Path, seconds: float) -> tuple[int, str]:
    """Exit code and output; -1 where time ran out."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            ["env", "--default-signal=INT", *command],  # a background job of a shell ignores it
            cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            code = -1
        output.seek(0)
        return code, output.read().decode(errors="replace")


def left_out(test: str) -> str:
    if SECURITY.search(test):
        return "security"
    return "transactions" if TRANSACTIONS.search(test) else ""


def go(folder: Path, wanted: str, seconds: float) -> Results:
    program = folder.absolute() / "suite.test"
    tool = shutil.which("go") or "/usr/local/go/bin/go"
    if not program.exists():
        subprocess.run([tool, "test", "-c", "-o", program, "./pulsar"], cwd=folder, check=True)
    where = folder / "pulsar"
    _, listed = run([str(program), "-test.list", "^Test"], where, 60)
    results: Results = {}
    for test in listed.split():
        if not re.search(wanted, test):
            continue
        if why := left_out(test):
            results[test] = {"result": SKIPPED, "why": why}
            continue
        began = time.monotonic()
        limit = f"-test.timeout={seconds:.0f}s"
        command = [str(program), f"-test.run=^{test}$", "-test.v", limit]
        code, output = run(command, where, seconds + 10)
        skipped = f"--- SKIP: {test} " in output
        note(results, test, SKIPPED if skipped else PASSED if code == 0 else FAILED, began, output)
    return results


def rust(folder: Path, wanted: str, seconds: float) -> Results:
    features = ["--no-default-features", "--features", "compression,tokio-runtime,admin-api"]
    command = ["cargo", "test", "--lib", *features]
    built = subprocess.run(
        [*command, "--no-run"], cwd=folder, check=True, capture_output=True, text=True
    )
    program = re.findall(r"\((\S+deps/pulsar-\w+)\)", built.stderr)[-1]
    program = str((folder / program).absolute())
    _, listed = run([program, "--list"], folder, 60)
    results: Results = {}
    for test in re.findall(r"^(\S+): test$", listed, re.MULTILINE):
        if not re.search(wanted, test):
            continue
        if why := left_out(test):
            results[test] = {"result": SKIPPED, "why": why}
            continue
        began = time.monotonic()
        code, output = run([program, "--exact", test, "--nocapture"], folder, seconds)
        skipped = "1 ignored" in output
        note(results, test, SKIPPED if skipped else PASSED if code == 0 else FAILED, began, output)
    return results


def python(folder: Path, wanted: str, seconds: float) -> Results:
    where = folder / "tests"
    script = (
        "import sys, unittest, importlib\n"
        "def walk(suite):\n"
        "    for each in suite:\n"
        "        if isinstance(each, unittest.TestSuite): yield from walk(each)\n"
        "        else: print(each.id())\n"
        "for name in sys.argv[1:]:\n"
        "    list(walk(unittest.defaultTestLoader.loadTestsFromName(name)))\n"
    )
    _, listed = run([sys.executable, "-c", script, *PYTHON_FILES], where, 60)
    results: Results = {}
    for test in re.findall(r"^\w+_test\.\S+$", listed, re.MULTILINE):
        if not re.search(wanted, test):
            continue
        if why := left_out(test):
            results[test] = {"result": SKIPPED, "why": why}
            continue
        began = time.monotonic()
        _, output = run([sys.executable, "-m", "unittest", "-v", test], where, seconds)
        skipped = "OK (skipped" in output
        passed = re.search(r"^OK$", output, re.MULTILINE)  # the library may crash when it ends
        note(results, test, SKIPPED if skipped else PASSED if passed else FAILED, began, output)
    return results


def note(results: Results, test: str, result: str, began: float, output: str) -> None:
    took = round(time.monotonic() - began, 1)
    results[test] = {"result": result, "seconds": took}
    if result == FAILED:
        results[test]["why"] = reason(output)
        results[test]["output"] = output[-6000:]
    print(f"{result:8}{took:7.1f} s  {test}  {results[test].get('why', '')}", flush=True)


def reason(output: str) -> str:
    """The line that says most."""
    for pattern in (
        r"Error:\s+(.*(?:\n\s+(?:expected|actual) *:.*)*)", r"panicked at .*\n(.*)",
        r"^(?:\w+\.)*(\w*(?:Error|Exception|Busy|Timeout|Refused)\b.*)$", r"^(panic: .*)$",
    ):  # fmt: skip
        if found := re.findall(pattern, output, re.MULTILINE):
            return re.sub(r"\s+", " ", found[0])[:160]
    return output.strip().split("\n")[-1][:160]


def report(ours: Results, real: Results) -> None:
    """The table of what failed on either, and the counts."""
    ours, real = ({t: r for t, r in each.items() if not left_out(t)} for each in (ours, real))
    for name, results in (("Trilogue", ours), ("Pulsar", real)):
        counts = {
            kind: sum(result["result"] == kind for result in results.values())
            for kind in (PASSED, FAILED, SKIPPED)
        }
        print(f"{name}: {counts}")
    print("\n| test | Trilogue | Pulsar | why |\n|---|---|---|---|")
    for test, result in sorted(ours.items()):
        there = real.get(test, {"result": "-"})
        if FAILED in {result["result"], there["result"]}:
            why = str(result.get("why") or there.get("why", "")).replace("|", "\\|")
            print(f"| `{test}` | {result['result']} | {there['result']} | {why} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="suites of Pulsar's own clients")
    parser.add_argument("suite", choices=["go", "python", "rust", "report"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--server", choices=["trilogue", "pulsar"], default="trilogue")
    parser.add_argument("--only", default="", help="a regular expression")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each test at most")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--ours", type=Path)
    parser.add_argument("--real", type=Path)
    chosen = parser.parse_args()
    if chosen.suite == "report":
        report(json.loads(chosen.ours.read_text()), json.loads(chosen.real.read_text()))
        return
    if "PULSAR_SUITES_INSIDE" not in os.environ:
        environment = {**os.environ, "PULSAR_SUITES_INSIDE": "1"}
        command = ["unshare", "--net", sys.executable, "-m", "tools.pulsar_suites", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with server(chosen.server):
        suite = {"go": go, "rust": rust, "python": python}[chosen.suite]
        results = suite(chosen.folder, chosen.only, chosen.seconds)
    if chosen.out:
        chosen.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
