"""The suite of rskafka, in Rust: each test in a process of its own."""

from __future__ import annotations

import json
import os
import re
import time

from tools.kafka_suites.programs import ADDRESS, Run
from tools.suites import FAILED, PASSED, run


def rskafka(job: Run) -> None:
    """Those of its tests that talk to a server; cargo has built them before, or fetched all."""
    more = {"TEST_INTEGRATION": "1", "KAFKA_CONNECT": ADDRESS, "TEST_BROKER_IMPL": "kafka"}
    if job.secured:
        more["KAFKA_SASL_CONNECT"] = "127.0.0.1:9094"
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
