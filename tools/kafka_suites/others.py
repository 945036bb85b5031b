"""Suites with few users so far: rskafka's in Rust, and @platformatic/kafka's for Node."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.kafka_suites.programs import ADDRESS, Run
from tools.suites import FAILED, PASSED, SKIPPED, run

PORTS = (9001, 9011)
"""Where @platformatic/kafka's suite has one node, and the first of three: here both are one."""


def rskafka(job: Run) -> None:
    """Those of its tests that talk to a server; cargo has built them before, or fetched all."""
    more = {"TEST_INTEGRATION": "1", "KAFKA_CONNECT": ADDRESS, "TEST_BROKER_IMPL": "kafka"}
    more["RUSTUP_TOOLCHAIN"] = os.environ.get("RUSTUP_TOOLCHAIN", "stable")
    build = ["cargo", "test", "--offline", "--features=full", "--no-run", "--message-format=json"]
    code, output = run(build, job.folder, 1200, more)
    if code != 0:
        raise SystemExit(output[-8000:])
    made = [json.loads(line) for line in output.splitlines() if line.startswith('{"reason":"comp')]
    programs = {
        each["target"]["name"]: each["executable"]
        for each in made
        if each.get("executable") and each["target"]["kind"] == ["test"]
    }
    for name, program in sorted(programs.items()):
        _, listed = run([program, "--list"], job.folder, 60, more)
        for test in re.findall(r"^(\S+): test$", listed, re.MULTILINE):
            if job.takes(f"{name}::{test}"):
                began = time.monotonic()
                command = [program, "--exact", test, "--nocapture"]
                code, output = run(command, job.folder, job.seconds, more)
                result = PASSED if code == 0 else FAILED
                job.note(f"{name}::{test}", result, time.monotonic() - began, output)


def platformatic(job: Run) -> None:
    """A process for each file of those that talk to a server."""
    places = ("clients", "issues")
    files = [each for place in places for each in (job.folder / "test" / place).rglob("*.test.ts")]
    node = ["node", "--import", "@swc-node/register/esm-register", "--test"]
    with handed_on():
        for file in sorted(files):
            name = str(file.relative_to(job.folder))
            if any(done.startswith(f"{name}::") for done in job.results) or not job.takes(name):
                continue
            with tempfile.TemporaryDirectory() as scratch:
                outcome = Path(scratch) / "outcome"
                command = [*node, "--test-reporter=tap", f"--test-reporter-destination={outcome}"]
                limit = f"--test-timeout={job.seconds * 1000:.0f}"
                more = {"KAFKA_VERSION": job.version}
                _, output = run([*command, limit, name], job.folder, job.seconds * 4, more)
                gather(job, name, outcome.read_text() if outcome.exists() else "", output)


def gather(job: Run, file: str, told: str, output: str) -> None:
    """What TAP says of the tests of a file."""
    found = re.findall(
        r"^(not ok|ok) \d+ - (.*?)(?: # ([A-Z]+)\b.*)?\n((?:  .*\n)*)", told, re.MULTILINE
    )
    if not found:
        job.note(file, FAILED, job.seconds, f"{output}\nE   hangs")
    for ok, words, skipped, details in found:
        test = f"{file}::{words}"
        if skipped:
            job.results[test] = {"result": SKIPPED, "why": skipped.lower()}
        elif job.takes(test):
            ms = re.search(r"duration_ms: ([\d.]+)", details)
            why = re.search(r"error: (?:\|-\n)?\s*(.*)", details)
            text = f"{details}\nE   {why[1] if why else ''}"
            job.note(test, PASSED if ok == "ok" else FAILED, float(ms[1]) / 1e3 if ms else 0, text)


@contextmanager
def handed_on() -> Iterator[None]:
    """Bytes that come to the suite's ports go to the server's and back."""
    loop = asyncio.new_event_loop()
    host, _, port = ADDRESS.rpartition(":")

    async def one_way(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while octets := await source.read(1 << 16):
                sink.write(octets)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(host, int(port))
        await asyncio.gather(one_way(reader, ours), one_way(theirs, writer))

    for each in PORTS:
        loop.run_until_complete(asyncio.start_server(serve, "localhost", each))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
