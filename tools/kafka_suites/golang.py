"""The suites in Go: each test in a process of its own, of one program for each package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.kafka_suites.programs import ADDRESS, Run
from tools.servers.probe import wait_for_answer
from tools.suites import FAILED, PASSED, SKIPPED, run

PROXIED = "127.0.0.1:29091"
"""The address that sarama's suite expects of a server: the first of five proxies."""
PROXIES, PROXY_PORT = 5, 8474
ONE_NODE = ((r"ReplicationFactor: 3", "ReplicationFactor: 1"), (r"Isr\) != 3", "Isr) != 1"))
"""sarama's settings of its five nodes, and those of one."""


def franz_go(job: Run) -> None:
    more = {"KGO_SEEDS": ADDRESS, "KGO_TEST_RF": "1", "KGO_LOG_LEVEL": "none"}
    more["KGO_TEST_RECORDS"] = os.environ.get("KGO_TEST_RECORDS", "50000")
    for package, module in (("kgo", job.folder), ("kadm", job.folder / "pkg" / "kadm")):
        named = "." if module == job.folder / "pkg" / package else f"./pkg/{package}"
        program = build(module, named, job.folder.absolute() / f"{package}.test")
        all_of(job, program, job.folder / "pkg" / package, more)


def kafka_go(job: Run) -> None:
    """The packages that talk to a server; the others read and write bytes."""
    more = {"KAFKA_VERSION": job.version, "KAFKA_SKIP_NETTEST": "1"}
    for package in ("", "compress", "topics"):
        target = job.folder.absolute() / f"{package or 'kafka-go'}.test"
        program = build(job.folder, f"./{package}", target, ["-mod=mod"])  # its sums are not whole
        all_of(job, program, job.folder / package, more)


def sarama(job: Run) -> None:
    """Its functional tests, which want five nodes behind proxies: here it is one behind all five.

    Of the suite's text only the number of copies is changed, where the compiler reads it.
    """
    folder = job.folder.absolute()
    with tempfile.TemporaryDirectory() as scratch:
        text = (folder / "functional_test.go").read_text()
        for words, instead in ONE_NODE:
            text = re.sub(words, instead, text)
        copy = Path(scratch) / "functional_test.go"
        copy.write_text(text)
        overlay = Path(scratch) / "overlay.json"
        overlay.write_text(json.dumps({"Replace": {str(folder / copy.name): str(copy)}}))
        options = ["-tags", "functional", "-overlay", str(overlay)]
        program = build(folder, ".", folder / "sarama.test", options)
        more = {"TOXIPROXY_ADDR": f"http://127.0.0.1:{PROXY_PORT}", "KAFKA_VERSION": job.version}
        with proxies(job.folder, Path(scratch)):
            all_of(job, program, folder, more, functional(folder))


def confluent_go(job: Run) -> None:
    """Its tests of a given server, which are methods of one test: each in a process of its own."""
    folder = job.folder / "kafka"
    program = build(job.folder, "./kafka", job.folder.absolute() / "kafka.test")
    text = (folder / "integration_test.go").read_text()
    for test in re.findall(r"^func \(its \*\w+\) (Test\w+)\(\)", text, re.MULTILINE):
        if job.takes(test):
            options = ["-docker.exists", "-testify.m", f"^{test}$"]
            one(job, program, folder, "TestIntegration", {}, named=test, options=options)


def functional(folder: Path) -> set[str]:
    """The tests that talk to a server: those in files named so."""
    texts = [each.read_text() for each in folder.glob("functional_*_test.go")]
    return {test for text in texts for test in re.findall(r"^func (Test\w+)", text, re.MULTILINE)}


@contextmanager
def proxies(folder: Path, scratch: Path) -> Iterator[None]:
    """Toxiproxy's server, whose program stands in the suite's folder."""
    rows = [
        {"name": f"kafka{i}", "listen": f"127.0.0.1:{29090 + i}", "upstream": ADDRESS}
        for i in range(1, PROXIES + 1)
    ]
    config = scratch / "proxies.json"
    config.write_text(json.dumps([{**row, "enabled": True} for row in rows]))
    command = [str(folder.absolute() / "toxiproxy-server"), "-config", str(config)]
    with (scratch / "proxies.log").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_for_answer(PROXIED, process.pid)
        yield
    finally:
        process.kill()
        process.wait()


def build(folder: Path, package: str, program: Path, options: Sequence[str] = ()) -> Path:
    """The program of a package's tests, unless it is there."""
    tool = shutil.which("go") or "/usr/local/go/bin/go"
    if not program.exists():
        command = [tool, "test", "-c", "-buildvcs=false", *options, "-o", str(program), package]
        subprocess.run(command, cwd=folder, check=True)
    return program


def all_of(
    job: Run, program: Path, where: Path, more: Mapping[str, str], only: set[str] | None = None
) -> None:
    """Each test of a program in a process of its own."""
    _, listed = run([str(program), "-test.list", "^Test"], where, 60, more)
    for test in re.findall(r"^Test\w+$", listed, re.MULTILINE):
        if (only is None or test in only) and job.takes(test):
            one(job, program, where, test, more)


def one(
    job: Run,
    program: Path,
    where: Path,
    test: str,
    more: Mapping[str, str],
    *,
    named: str = "",
    options: Sequence[str] = (),
) -> None:
    """A test, or with options the part of it that is named so."""
    began = time.monotonic()
    limit = f"-test.timeout={job.seconds:.0f}s"
    command = [str(program), f"-test.run=^{test}$", "-test.v", limit, *options]
    code, output = run(command, where, job.seconds + 10, more)
    skipped = re.search(rf"--- SKIP: (?:\w+/)?{named or test} ", output)
    took = time.monotonic() - began
    job.note(named or test, SKIPPED if skipped else PASSED if code == 0 else FAILED, took, output)
