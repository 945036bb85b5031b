"""Ready-made programs of Kafka's world as processes of their own: Streams, Connect, MirrorMaker.

    with program(folder, "3.9.1", "org.apache.kafka.connect.cli.ConnectStandalone", path) as made:
        made.wait_for("Kafka Connect started")

What they print, on both outputs, goes to a file and can be waited for; they end with the test.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self, TypeVar

from tools.servers.java import jars

from tests.conformance.clients.building import BUILD, HERE, classes
from tests.tools import require, require_program
from tests.waiting import wait_until

START = ["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m"]
LOGGING = ["-Dorg.slf4j.simpleLogger.log.org.reflections=off"]
PATIENCE = 120.0
LOOK_EVERY = 0.05
Found = TypeVar("Found")


def require_apps(version: str) -> None:
    """Java and the programs of one Kafka version (`make jars`)."""
    require_program("java")
    require(f"apps-{version}", found=any(jars(f"apps-{version}").glob("kafka-streams-*.jar")))


def wait(what: str, look: Callable[[], Found | None], seconds: float = PATIENCE) -> Found:
    """What `look` comes back with as soon as that is something."""
    found = wait_until(look, what, seconds)
    assert found is not None
    return found


class App:
    """One Java program that runs."""

    def __init__(
        self,
        folder: Path,
        version: str,
        main: str,
        arguments: Sequence[object],
        *,
        classes: Path | None = None,
        level: str = "error",
    ) -> None:
        require_apps(version)
        folder.mkdir(parents=True, exist_ok=True)
        path = f"{jars(f'apps-{version}')}/*"
        path = f"{classes}:{path}" if classes else path
        level = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={level}"
        self.printed = folder / "output"
        command = ["java", *START, *LOGGING, level, "-cp", path, main]
        with self.printed.open("ab") as output:
            self.began = output.tell()
            self.process = subprocess.Popen(
                [*command, *map(str, arguments)],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    @property
    def output(self) -> str:
        return self.printed.read_bytes()[self.began :].decode(errors="replace")

    def wait_for(self, text: str, seconds: float = PATIENCE, after: int = 0) -> None:
        def look() -> bool:
            assert self.process.poll() is None, f"ended early:\n{self.output[-4000:]}"
            return text in self.output[after:]

        try:
            wait(text, look, seconds)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.output[-4000:]}") from None

    def stop(self) -> int:
        """SIGTERM, after which these programs close what they have."""
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def kill9(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


class StreamsApp(App):
    """A Kafka Streams application (java-streams, compiled against its version).

    It reads the first of its topics and writes the second.
    """

    main: ClassVar[str]

    def __init__(
        self,
        folder: Path,
        version: str,
        topics: tuple[str, str],
        settings: Mapping[str, object],
        *,
        level: str = "error",
    ) -> None:
        require_apps(version)
        require_program("javac")
        source = HERE / "java-streams" / f"{self.main}.java"
        path = f"{jars(f'apps-{version}')}/*"
        made = classes(BUILD / "kafka-clients" / f"streams-{self.main}-{version}", [source], path)
        words = [f"{name}={value}" for name, value in settings.items()]
        arguments = [*topics, *words]
        super().__init__(folder, version, self.main, arguments, classes=made, level=level)

    def close(self) -> None:
        """End the application in an orderly way."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 0
        assert "closed" in self.output


class ForeignKeyJoin(StreamsApp):
    """Joins two tables by a foreign key."""

    main = "ForeignKeyJoin"


class TransactionPipe(StreamsApp):
    """Plain producers and consumers that pass messages on in transactions."""

    main = "TransactionPipe"


class WordCount(StreamsApp):
    """Counts words."""

    main = "WordCount"

    def counts(self) -> dict[str, int]:
        """What the store holds."""
        assert self.process.stdin is not None
        after = len(self.output)
        self.process.stdin.write(b"counts\n")
        self.process.stdin.flush()
        self.wait_for("end\n", after=after)
        lines = [line.split() for line in self.output[after:].splitlines()]
        return {line[1]: int(line[2]) for line in lines if line and line[0] == "count"}


def properties(path: Path, settings: Mapping[str, object]) -> Path:
    """A .properties file."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path
