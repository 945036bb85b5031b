"""Load drivers in C and in Java: compiled when a benchmark starts, run beside the server.

Results come as JSON. A driver prints "begin" and "end" around what it measures; the callbacks read
the server's counters at these moments.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.servers.java import CLIENT_LOGGING, OPENED

HERE = Path(__file__).parent
BUILD = HERE.parent.parent.resolve() / "build" / "bench"

Moment = Callable[[], None]
Result = dict[str, float]


def nothing() -> None:
    """For runs that are not measured."""


class DriverError(Exception):
    """A driver failed, or measured requests that failed."""


def compile_driver(name: str, into: Path) -> Path:
    """The program, compiled with whatever C compiler there is."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise DriverError("the load drivers want a C compiler")
    into.mkdir(parents=True, exist_ok=True)
    program = into / name
    command = [compiler, "-O2", "-o", str(program), str(HERE / f"{name}.c")]
    command += ["-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return program


def librdkafka() -> Path:
    """The library inside the installed confluent-kafka wheel."""
    import confluent_kafka

    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    found = sorted(folder.glob("librdkafka*"))
    if not found:
        raise DriverError(
            f"no librdkafka in {folder}: confluent-kafka was not installed as a wheel"
        )
    return found[0]


def compile_java(name: str, into: Path, class_path: str) -> Path:
    """The folder with the classes of a driver in Java."""
    into = into / name
    into.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-nowarn", "-cp", class_path, "-d", str(into)]
    command += [str(HERE / f"{each}.java") for each in (name, "Load")]
    subprocess.run(command, check=True, capture_output=True)
    (into / "log4j2.properties").write_text(CLIENT_LOGGING)
    return into


def java_command(
    class_path: list[object], name: str, words: list[str], options: dict[str, float]
) -> list[str]:
    """How a driver in Java is called; the first folder of its class path has its classes."""
    command: list[object] = ["java", "-Xms512m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g"]
    command += [f"-Dlog4j2.configurationFile={class_path[0]}/log4j2.properties"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]  # Kafka's clients of today
    command += ["-Dio.netty.tryReflectionSetAccessible=true", "-Djava.net.preferIPv4Stack=true"]
    command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    command += ["-cp", ":".join(str(part) for part in class_path), name, *words]
    return [str(word) for word in (*command, *spelled(options))]


def run_java(
    class_path: list[object],
    name: str,
    words: list[str],
    *,
    begin: Moment = nothing,
    end: Moment = nothing,
    options: dict[str, float],
) -> Result:
    """Run a driver in Java (`java_command`)."""
    return run(java_command(class_path, name, words, options), begin, end)


class Drivers:
    """The compiled drivers and how they are called."""

    def __init__(self, build: Path) -> None:
        self.load_program = compile_driver("load", build)
        self.rdkafka_program = compile_driver("rdkafka", build)
        self.library = librdkafka()
        self.niceness = 0

    def load(
        self,
        address: str,
        topic: str,
        *,
        begin: Moment = nothing,
        end: Moment = nothing,
        **options: float,
    ) -> Result:
        """Ready-made produce requests (load.c)."""
        command = [self.load_program, address, topic]
        return run([*self._nicely(), *command, *spelled(options)], begin, end)

    def rdkafka(
        self,
        mode: str,
        address: str,
        topic: str,
        *,
        settings: dict[str, object],
        begin: Moment = nothing,
        end: Moment = nothing,
        **options: float,
    ) -> Result:
        """librdkafka, producing or consuming (rdkafka.c)."""
        pairs = [f"{key}={value}" for key, value in settings.items()]
        command = [self.rdkafka_program, self.library, mode, address, topic]
        return run([*self._nicely(), *command, *spelled(options), *pairs], begin, end)

    def _nicely(self) -> list[object]:
        return ["nice", "-n", self.niceness] if self.niceness else []


def spelled(options: dict[str, float]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def run(command: Sequence[object], begin: Moment, end: Moment) -> Result:
    """Run a driver; its JSON. Errors it counted are an error; one of `begin` kills it."""
    words = [str(word) for word in command]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        result: Result | None = None
        try:
            for line in process.stdout:
                match line.strip():
                    case "begin":
                        begin()
                    case "end":
                        end()
                    case text if text.startswith("{"):
                        result = json.loads(text)
        except BaseException:
            process.kill()
            raise
    if process.returncode or result is None:
        raise DriverError(f"{' '.join(words)} ended with {process.returncode}")
    if result["errors"]:
        raise DriverError(f"{' '.join(words)}: {result['errors']:.0f} errors")
    return result
