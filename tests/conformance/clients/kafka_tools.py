"""Kafka's command-line tools of one version, all in one process (java-tools/Tools.java).

output = TOOLS_3.run("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address, "--list")
assert output.status == 0 and "topic" in output.text
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tools.servers.java import jars

from tests.conformance.clients.building import BUILD, HERE, QUICK_START, QUIET, classes
from tests.conformance.clients.driven import Driven
from tests.tools import require_jars, require_program


@dataclass(frozen=True)
class ToolOutput:
    """How a tool ended and what it printed, on both outputs."""

    status: int
    text: str


class Tools(Driven):
    """The tools of one version; `run` is the only verb."""

    def __init__(self, version: str) -> None:
        super().__init__()
        self.version = version
        self.name = f"tools-{version}"

    def require(self) -> None:
        require_jars(self.version)
        require_program("javac")

    def command(self) -> list[str | Path]:
        source = HERE / "java-tools" / "Tools.java"
        path = f"{jars(self.version)}/*"
        made = classes(BUILD / "kafka-clients" / self.name, [source], path)
        return ["java", *QUICK_START, QUIET, "-cp", f"{made}:{path}", "Tools"]

    def run(self, main: str, *arguments: object) -> ToolOutput:
        got = self.request("run", main=main, arguments=[str(each) for each in arguments])
        assert isinstance(got, dict)
        return ToolOutput(got["status"], got["text"])


TOOLS_3, TOOLS_4 = Tools("3.9.1"), Tools("4.3.1")
TOOLS = [TOOLS_3, TOOLS_4]
