"""Kafka's tools with the file that a secured directory has for Java clients, as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.clients.kafka_tools import TOOLS, Tools
from tests.server import start_server

COMMAND = "org.apache.kafka.tools.TopicCommand"

pytestmark = [pytest.mark.full, pytest.mark.java]


@pytest.mark.parametrize("tools", TOOLS, ids=lambda tools: tools.version)
def test_tools_log_in_with_the_file_for_java(tools: Tools, tmp_path: Path):
    tools.require()
    data = tmp_path / "data"
    with start_server(data, arguments=["--secure"]) as server:
        file = data / "clients" / "kafka.properties"
        at = ("--bootstrap-server", server.doors["kafka-sasl-ssl"], "--command-config", file)
        created = tools.run(COMMAND, *at, "--create", "--topic", "orders")
        assert created.status == 0, created.text
        assert "orders" in tools.run(COMMAND, *at, "--list").text

        spark = (data / "clients" / "spark.properties").read_text().splitlines()
        assert [line.removeprefix("kafka.") for line in spark] == file.read_text().splitlines()
        assert all(line.startswith("kafka.") for line in spark)
