"""The sample projects of examples/testing, run as their users do: Python, Java, Go."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tools.servers.java import jars
from tools.servers.tubemq import VERSION as TUBEMQ_VERSION

from tests.conformance.clients.building import BUILD, QUICK_START, classes, go, require_go
from tests.tools import require_jars, require_program, require_tubemq_jars

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "testing"
KAFKA_VERSION = "4.3.1"
TRILOGUE = Path(sys.executable).parent / "trilogue"
WAIT_S = 300
RUNS = 3


def run(command: list[str | Path], folder: Path, **more: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "TRILOGUE": str(TRILOGUE), **more},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_quick_tests(command: list[str | Path], folder: Path, row: str, tests: int) -> None:
    """Run the tests of a project; each takes less than a second in one of a few runs.

    Other processes have the machine, too. `row` finds the name of a test and its seconds.
    """
    times: dict[str, float] = {}
    for _ in range(RUNS):
        for match in re.finditer(row, run(command, folder), re.MULTILINE):
            name, number = match["name"], float(match["time"])
            times[name] = min(number, times.get(name, number))
        assert len(times) == tests
        if max(times.values()) < 1:
            return
    raise AssertionError(times)


PYTHON = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]


def test_the_tests_in_python_pass():
    assert re.search(r"\d+ passed", run(PYTHON, EXAMPLES / "python"))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_each_test_in_python_takes_less_than_a_second():
    row = r"^(?P<time>[\d.]+)s call +(?P<name>\S+)$"
    run_quick_tests([*PYTHON, "-vv", "--durations=0"], EXAMPLES / "python", row, tests=6)


def build_java() -> list[str | Path]:
    """Compile the project in Java; return the command that runs its tests."""
    require_program("javac")
    require_jars(KAFKA_VERSION)
    require_tubemq_jars()
    kafka = jars(KAFKA_VERSION) / f"kafka-clients-{KAFKA_VERSION}.jar"
    path = f"{kafka}:{jars(f'tubemq-{TUBEMQ_VERSION}')}/*"
    sources = sorted((EXAMPLES / "java").glob("*.java"))
    target = classes(BUILD / "examples" / "java", sources, path)
    return ["java", *QUICK_START, "-cp", f"{target}:{path}", "BillingTest"]


def test_the_tests_in_java_pass():
    assert run(build_java(), EXAMPLES).count("ok: ") == 6


@pytest.mark.long
@pytest.mark.timeout(300)
def test_each_test_in_java_takes_less_than_a_second():
    row = r"^ok: (?P<name>.*) \((?P<time>[\d.]+) s\)$"
    run_quick_tests(build_java(), EXAMPLES, row, tests=6)


@pytest.mark.long  # its first build takes minutes
@pytest.mark.timeout(600)
def test_the_tests_in_go_pass():
    require_go((1, 26))
    tool = go()
    assert tool is not None

    output = run([tool, "test", "-count=1", "-v", "./..."], EXAMPLES / "go")

    assert output.count("--- PASS") == 5


def start() -> tuple[subprocess.Popen[str], dict[str, str]]:
    process = subprocess.Popen(
        [TRILOGUE, "serve", "--test"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


@pytest.mark.parametrize("end", ["stdin", "signal"])
def test_a_test_server_ends_with_its_stdin_or_by_a_signal(end):
    process, addresses = start()
    with process:
        assert set(addresses) == {"kafka", "pulsar", "tubemq", "http", "test"}

        if end == "stdin":
            process.stdin.close()
        else:
            process.send_signal(signal.SIGTERM)

        assert process.wait(WAIT_S) == 0


def test_a_test_server_ends_with_its_parent():
    """The server holds the pipe of the parent's errors, which ends with it."""
    code = (
        "import subprocess, sys\n"
        "server = subprocess.Popen([sys.argv[1], 'serve', '--test'],\n"
        "    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)\n"
        "print(server.stdout.readline())\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", code, TRILOGUE],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )

    assert json.loads(parent.stdout)["kafka"]


def test_a_test_server_takes_no_listeners_and_no_security():
    for option in (["--listen", "kafka=127.0.0.1:9092"], ["--secure"], ["--nodes", "2"]):
        done = subprocess.run(
            [TRILOGUE, "serve", "--test", *option], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert "--test serves on free ports" in done.stderr
