"""A pytest plugin inside the suites in Python: where the broker is, and what became of each test.

It stands in for the fixtures with which aiokafka starts a broker in a container; the other suites
take an address from their environment. Every outcome is a line of JSON, written at once: the
process may be killed by the next test. It runs among the suite's packages: nothing of Trilogue.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

HOST, PORT = "127.0.0.1", 9092


class Container:
    """In place of the broker's container: Kafka's own scripts, which ask the broker itself."""

    def exec_run(self, command: str) -> tuple[int, bytes]:
        program, *words = shlex.split(command)
        for option in ("--authorizer-properties", "--zookeeper"):  # of brokers before 4.0
            if option in words:
                at = words.index(option)
                del words[at : at + 2]
        script = Path(os.environ["SUITE_TOOLS"]) / Path(program).name
        admin = ["--bootstrap-server", f"{HOST}:{PORT + 2}"]
        admin += ["--command-config", os.environ["SUITE_ADMIN"]]
        done = subprocess.run([script, *admin, *words], capture_output=True, check=False)
        return done.returncode, done.stdout + done.stderr


def fixtures() -> dict[str, object]:
    server = SimpleNamespace(
        host=HOST, port=PORT, hosts=[f"{HOST}:{PORT}"], ssl_port=PORT + 1,
        sasl_plain_port=PORT + 2, sasl_ssl_port=PORT + 3, container=Container(),
    )  # fmt: skip
    return {
        "docker": SimpleNamespace(),
        "kafka_image": os.environ["SUITE_IMAGE"],
        "ssl_folder": Path("tests/ssl_cert"),
        "kafka_server": server,
        "kerberos_utils": SimpleNamespace(),
    }


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> object:
    if "SUITE_IMAGE" not in os.environ or fixturedef.argname not in (own := fixtures()):
        return None
    value = own[fixturedef.argname]
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value


def pytest_collection_finish() -> None:
    """Give confluent's fixture for a given server the asynchronous client that its others have."""
    module = sys.modules.get("tests.integration.cluster_fixture")
    if module is None or hasattr(module.ByoFixture, "async_schema_registry"):
        return

    def async_schema_registry(self: Any, _conf: object = None) -> object:
        return module.AsyncSchemaRegistryClient({"url": self._sr_url})

    module.ByoFixture.async_schema_registry = async_schema_registry


def pytest_runtest_logstart(nodeid: str) -> None:
    note(nodeid, "started", 0.0, "")


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or report.outcome != "passed":
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        note(report.nodeid, report.outcome, report.duration, why)


def note(test: str, result: str, seconds: float, output: str) -> None:
    line = {"test": test, "result": result, "seconds": round(seconds, 1), "output": output}
    with Path(os.environ["SUITE_RESULTS"]).open("a") as results:
        results.write(json.dumps(line) + "\n")
