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
from tools.suites import FAILED, PASSED, SKIPPED, Results, enter_own_network, note, report, run

SECURITY = re.compile(
    r"TLS|HTTPS|tls_|[Aa]uth(?!or)|OAuth|oauth|CAError|Basic|Certificate|certificate"
)
TRANSACTIONS = re.compile(r"Txn|Transaction|transaction")
TELLING = (
    r"Error:\s+(.*(?:\n\s+(?:expected|actual) *:.*)*)", r"panicked at .*\n(.*)",
    r"^(?:\w+\.)*(\w*(?:Error|Exception|Busy|Timeout|Refused)\b.*)$", r"^(panic: .*)$",
)  # fmt: skip
PYTHON_FILES = [
    "custom_logger_test", "debug_logger_test", "interrupted_test", "pulsar_test", "schema_test",
    "table_view_test", "reader_test", "asyncio_test",
]  # fmt: skip
TENANTS = {"public": ["public/default", "public/default-2"], "private": ["private/auth"]}


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
        noted(results, test, SKIPPED if skipped else PASSED if code == 0 else FAILED, began, output)
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
        noted(results, test, SKIPPED if skipped else PASSED if code == 0 else FAILED, began, output)
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
        noted(results, test, SKIPPED if skipped else PASSED if passed else FAILED, began, output)
    return results


def noted(results: Results, test: str, result: str, began: float, output: str) -> None:
    note(results, test, result, time.monotonic() - began, output, telling=TELLING)


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
        ours, real = (json.loads(each.read_text()) for each in (chosen.ours, chosen.real))
        report(ours, real, "Pulsar", left_out)
        return
    enter_own_network("tools.pulsar_suites")
    with server(chosen.server):
        suite = {"go": go, "rust": rust, "python": python}[chosen.suite]
        results = suite(chosen.folder, chosen.only, chosen.seconds)
    if chosen.out:
        chosen.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
