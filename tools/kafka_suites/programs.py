"""How each suite names its tests, and runs them so that one that hangs is one that fails."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tools.suites import FAILED, PASSED, SKIPPED, Results, note, run

ADDRESS = "127.0.0.1:9092"
SECURITY = re.compile(r"(?i)ssl|sasl|acl|scram|oauth|tls|auth(?!or)|gssapi|kerberos|delegation")
KERBEROS = re.compile(r"(?i)gssapi|kerberos")
SHARE = re.compile(r"(?i)share")
TELLING = (
    r"TEST FAILURE.*\n(?:###.*\n)?(.*)",
    r"^E\s+(.*)$",
    r"^\s+\w+_test\.go:\d+: (.*)$",
    r"^(panic: .*)$",
    r"^(?:\w+\.)*(\w*(?:Error|Exception|Timeout)\b.*)$",
)
CALLS_KAFKAS_SCRIPTS = {"0081", "0109"}  # which have no login
LIBRDKAFKA_LOGIN = """bootstrap.servers=127.0.0.1:9095
test.topic.random=true
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.username=scram
sasl.password=of-the-suite
ssl.ca.location={authority}
"""
APPEND = "--import-mode=append"  # the client that is installed, not the sources beside the tests


@dataclass
class Run:
    """The options of a run.

    `wanted` is a regular expression of names, `version` the Kafka version that the suite assumes,
    `tools` holds Kafka's own scripts, `consumer` selects KIP-848 groups, `auto_create`
    whether the server makes topics by itself, `quick` that librdkafka may do less in some tests,
    `secured` that the server has the listeners and users of the suite (secured.py), `share` that
    share groups are tested, `registry` the address of its schema registry.
    """

    folder: Path
    wanted: str
    seconds: float
    version: str
    python: str
    tools: Path
    consumer: bool = False
    auto_create: bool = True
    quick: bool = True
    secured: bool = False
    share: bool = False
    registry: str = ""
    results: Results = field(default_factory=dict)

    def takes(self, test: str) -> bool:
        """Whether it is to be run, and was not yet; a reason to leave it out is noted."""
        if not re.search(self.wanted, test) or test in self.results:
            return False
        if why := left_out(test, secured=self.secured, share=self.share):
            self.results[test] = {"result": SKIPPED, "why": why}
        return not why

    def note(self, test: str, result: str, seconds: float, output: str) -> None:
        note(self.results, test, result, seconds, output, telling=TELLING)


def left_out(test: str, *, secured: bool = False, share: bool = False) -> str:
    if not share and SHARE.search(test):
        return "share groups"
    if secured:
        return "Kerberos" if KERBEROS.search(test) else ""
    return "security" if SECURITY.search(test) else ""


def aiokafka(job: Run) -> None:
    image = f"aiokafka:2.13_{job.version}"
    folders = ("coordinator", "record")  # use no server, and have names that differ each time
    files = ["tests", *(f"--ignore=tests/{each}" for each in folders)]
    admin = job.tools / "admin.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    admin.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="admin" password="admin";\n'
    )
    more = {"SUITE_IMAGE": image, "SUITE_TOOLS": str(job.tools / "bin"), "SUITE_ADMIN": str(admin)}
    pytest(job, files, more, [f"--docker-image={image}", "--no-pull", APPEND])


def kafka_python(job: Run) -> None:
    more = {"KAFKA_URI": f"kafka://{ADDRESS}", "KAFKA_VERSION": job.version}
    more["KAFKA_ROOT"] = str(job.tools)
    pytest(job, ["test/integration"], more, [])


def confluent(job: Run) -> None:
    more = {"BROKERS": ADDRESS}
    if job.consumer:
        more["TEST_CONSUMER_GROUP_PROTOCOL"] = "consumer"
    names = ["admin", "consumer", "producer", *(["share_consumer"] if job.share else [])]
    if job.registry:
        names += ["schema_registry", "serialization"]
        more["SR_URL"] = job.registry
    pytest(job, [f"tests/integration/{name}" for name in names], more, [APPEND])


def pytest(job: Run, where: list[str], more: dict[str, str], options: list[str]) -> None:
    """One process for all tests, and another from the next one on where a test has hung."""
    plugin = str(Path(__file__).parent)
    paths = os.pathsep.join([plugin, *more.pop("PYTHONPATH", "").split()])
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = Path(scratch) / "outcomes"
        more = {**more, "PYTHONPATH": paths, "SUITE_RESULTS": str(outcomes)}
        command = [job.python, "-P", "-m", "pytest", "-p", "where", *options]
        _, listed = run([*command, "--collect-only", "-q", *where], job.folder, 120, more)
        names = re.findall(r"^\S+::.*$", listed, re.MULTILINE)
        if not names:
            raise SystemExit(listed)
        todo = [test for test in names if job.takes(test)]
        limit = ["--timeout", f"{job.seconds:.0f}", "--timeout-method=thread", "-q"]
        while todo:
            outcomes.write_text("")
            _, output = run(
                [*command, *limit, *todo], job.folder, job.seconds * len(todo) + 60, more
            )
            done = gather(job, outcomes, output)
            if not done:
                raise SystemExit(output)
            todo = [test for test in todo if test not in done]


def gather(job: Run, outcomes: Path, output: str) -> set[str]:
    """Record the output of a process about its tests; the last one has hung if it only started."""
    last: dict[str, dict[str, object]] = {}
    for line in outcomes.read_text().splitlines():
        found = json.loads(line)
        before = last.get(str(found["test"]), {}).get("result")
        if before != FAILED:  # torn down well, after it has failed
            last[str(found["test"])] = found
    for test, found in last.items():
        if found["result"] == "started":
            job.note(test, FAILED, job.seconds, f"{output}\nE   hangs")
        else:
            job.note(test, str(found["result"]), float(str(found["seconds"])), str(found["output"]))
    return set(last)


def librdkafka(job: Run) -> None:
    """Its program runs by number: what stands under one number runs in one process."""
    where = job.folder / "tests"
    config = where / "suite.conf"
    plain = f"bootstrap.servers={ADDRESS}\ntest.topic.random=true\n"
    secured = LIBRDKAFKA_LOGIN.format(authority=(where / "suite.crt").absolute())
    text = (where / "test.c").read_text()
    rows = re.findall(r"^    _TEST\((\w+),\s*([^,)]*)", text, re.MULTILINE)
    numbers: dict[str, list[str]] = {}
    for name, flags in rows:
        if "LOCAL" not in flags and "MANUAL" not in flags and "mock" not in name:
            numbers.setdefault(name[:4], []).append(name)
    more = {
        "RDKAFKA_TEST_CONF": config.name,
        "LD_LIBRARY_PATH": "../src:../src-cpp",
        "TEST_KAFKA_VERSION": job.version,
        "BROKERS": ADDRESS,
        "KAFKA_PATH": str(job.tools),
        "CI": "true",
    }
    if job.consumer:
        more["TEST_CONSUMER_GROUP_PROTOCOL"] = "consumer"
    if not job.auto_create:
        more["TEST_SCENARIO"] = "noautocreate"
    admin = re.findall(
        r"^static void\s+do_test_(\w+)\(", (where / "0081-admin.c").read_text(), re.MULTILINE
    )
    parts = {f"0081_admin/{each}" for each in admin if each not in {"apis", "acls_count"}}
    numbers["0081"] = []
    for name in sorted(parts):  # in one process nothing comes after what needs ACLs
        numbers[name] = [name]
    for number, under_it in numbers.items():
        names = [name for name in under_it if job.takes(name)]
        if not names:
            continue
        is_plain = not job.secured or number[:4] in CALLS_KAFKAS_SCRIPTS
        config.write_text(plain if is_plain else secured)
        began = time.monotonic()
        command = ["./test-runner", "-p1", "-L", "-K", *(["-Q"] if job.quick else [])]
        _, output = run(command, where, job.seconds, {**more, **chosen_by(number)})
        output = re.sub(r"\x1b\[[\d;]*m", "", output)
        for name in names:
            row = re.escape(name.partition("/")[0])
            found = re.search(rf"^\| *{row} *\| *(\w+)", output, re.MULTILINE)
            result = {"PASSED": PASSED, "SKIPPED": SKIPPED}.get(found[1] if found else "", FAILED)
            job.note(name, result, time.monotonic() - began, output)


def chosen_by(number: str) -> dict[str, str]:
    test, _, part = number.partition("/")
    return {"TESTS": test[:4], **({"SUBTESTS": f"do_test_{part}:"} if part else {})}
