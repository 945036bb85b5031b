"""The suites in JavaScript: each file in a process of its own, by Jest or by Mocha."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tools.kafka_suites.programs import ADDRESS, Run, left_out
from tools.suites import FAILED, PASSED, SKIPPED, run

COLOURS = re.compile(r"\x1b\[[\d;]*m")
JEST = ("node_modules/.bin/jest", "--forceExit", "--runInBand", "--ci", "--json")
MOCHA = ("node_modules/.bin/mocha", "--exit", "--reporter", "json")


def kafkajs(job: Run) -> None:
    places = ("admin", "broker", "consumer", "producer")
    files = [each for place in places for each in (job.folder / "src" / place).rglob("*.spec.js")]
    more = {"KAFKA_VERSION": "2.4", "NODE_ENV": "test", "KAFKAJS_DEBUG_PROTOCOL_BUFFERS": "1"}
    run_jest(job, files, more)


def confluent_javascript(job: Run) -> None:
    """Its two APIs: that of kafkajs, which Jest tests, and that of node-rdkafka."""
    more = {"KAFKA_HOST": ADDRESS}
    if job.consumer:
        more["TEST_CONSUMER_GROUP_PROTOCOL"] = "consumer"
    where = job.folder / "test/promisified"
    files = [each for each in where.rglob("*.spec.js") if each.parent.name != "unit"]
    run_jest(job, files, more, ["--config={}"])  # none is in TypeScript
    run_mocha(job, (job.folder / "e2e").glob("*.spec.js"), more)


def node_rdkafka(job: Run) -> None:
    run_mocha(job, (job.folder / "e2e").glob("*.spec.js"), {"KAFKA_HOST": ADDRESS})


def run_jest(
    job: Run, files: Iterable[Path], more: Mapping[str, str], choice: Sequence[str] = ()
) -> None:
    for file in sorted(files):
        name = str(file.relative_to(job.folder))
        if not job.takes(name):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            outcome = Path(scratch) / "outcome.json"
            options = [f"--testTimeout={job.seconds * 500:.0f}", *choice]
            command = [*JEST, *options, f"--outputFile={outcome}", "--runTestsByPath", name]
            _, output = run(command, job.folder, job.seconds * 10, more)
            if not outcome.exists():
                job.note(name, FAILED, job.seconds * 10, f"{output}\nE   hangs")
                continue
            found = json.loads(outcome.read_text())["testResults"][0]
            if not found["assertionResults"] and found["status"] == FAILED:
                job.note(name, FAILED, 0.0, COLOURS.sub("", found["message"]))
            for each in found["assertionResults"]:
                test = f"{name}::{each['fullName']}"
                why = left_out(test, secured=job.secured, share=job.share)
                if why or each["status"] not in (PASSED, FAILED):
                    job.results[test] = {"result": SKIPPED, "why": why or each["status"]}
                    continue
                text = COLOURS.sub("", "\n".join(each["failureMessages"]))
                job.note(test, each["status"], (each.get("duration") or 0) / 1000, text)


def run_mocha(job: Run, files: Iterable[Path], more: Mapping[str, str]) -> None:
    for file in sorted(files):
        name = str(file.relative_to(job.folder))
        if not job.takes(name):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            outcome = Path(scratch) / "outcome.json"
            options = ["--timeout", f"{job.seconds * 1000:.0f}"]
            options += ["--reporter-option", f"output={outcome}"]
            _, output = run([*MOCHA, *options, name], job.folder, job.seconds * 10, more)
            if not outcome.exists():
                job.note(name, FAILED, job.seconds * 10, f"{output}\nE   hangs")
                continue
            found = json.loads(outcome.read_text())
            for each in found["pending"]:
                job.results[f"{name}::{each['fullTitle']}"] = {"result": SKIPPED, "why": "pending"}
            for result, tests in ((PASSED, found["passes"]), (FAILED, found["failures"])):
                for each in tests:
                    text = COLOURS.sub("", str(each.get("err", {}).get("stack", "")))
                    test = f"{name}::{each['fullTitle']}"
                    job.note(test, result, (each.get("duration") or 0) / 1000, text)
