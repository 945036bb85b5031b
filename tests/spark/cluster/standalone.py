"""A standalone cluster of Spark from pip's PySpark: a master, workers, and a Connect server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

import trilogue
from tests.waiting import wait_until

HOST = "127.0.0.1"
START_S = 400.0


def _end(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(90)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _clean_environment() -> dict[str, str]:
    foreign = ("SPARK", "PYSPARK", "PYTHONPATH")
    return {key: one for key, one in os.environ.items() if not key.startswith(foreign)}


def make_bare_python(folder: Path) -> Path:
    """Make an environment with all packages of this one but Trilogue, and return its Python."""
    venv.create(folder, with_pip=False)
    ours, theirs = (
        Path(sysconfig.get_path("purelib", vars={"base": base, "platbase": base}))
        for base in (sys.prefix, str(folder))
    )
    for entry in ours.iterdir():
        if "trilogue" not in entry.name:
            (theirs / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def make_archive(target: Path) -> Path:
    """Return an archive of the package's Python files, as `--py-files` ships it."""
    source = Path(trilogue.__file__).parents[1]
    with zipfile.ZipFile(target, "w") as archive:
        for package in ("trilogue", "pyspark_trilogue"):
            for path in sorted((source / package).rglob("*.py")):
                archive.write(path, path.relative_to(source))
    return target


class StandaloneCluster:
    """A master, and a worker at each of these addresses, whose tasks run in one Python."""

    def __init__(
        self, folder: Path, java_home: str, python: Path, workers: Sequence[str] = (HOST, HOST)
    ) -> None:
        self.folder = folder
        self.python = python
        self._home = Path(pyspark.__file__).parent
        self._environment = {
            **_clean_environment(),
            "JAVA_HOME": java_home,
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
        }
        self._processes: list[subprocess.Popen] = []
        deploy = "org.apache.spark.deploy"
        log = self._start(
            [f"{deploy}.master.Master", "--host", HOST, "--port", "0", "--webui-port", "0"]
        )
        self.master = self._wait(log, r"Starting Spark master at (spark://\S+)")
        logs = [
            self._start(
                [f"{deploy}.worker.Worker", self.master, "--host", host, "--cores", "1",
                 "--memory", "700m", "--webui-port", "0",
                 "--work-dir", str(folder / f"worker-{number}")]
            )
            for number, host in enumerate(workers)
        ]  # fmt: skip
        for log in logs:
            self._wait(log, r"Successfully (registered) with master")

    @contextmanager
    def connect(self, archive: Path, settings: Mapping[str, str]) -> Iterator[str]:
        """Run a Connect server that ships an archive, at this address; it takes all cores."""
        self._environment |= {"PYTHONPATH": str(archive), "SPARK_DAEMON_MEMORY": "700m"}
        pairs = {
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": "0",
            "spark.submit.pyFiles": str(archive),
            **settings,
        }
        options = [part for key, value in pairs.items() for part in ("--conf", f"{key}={value}")]
        service = "org.apache.spark.sql.connect.service.SparkConnectServer"
        log = self._start(
            ["org.apache.spark.deploy.SparkSubmit", "--master", self.master, *options,
             "--class", service, "spark-internal"]
        )  # fmt: skip
        port = self._wait(log, r"Spark Connect server started at: \S+:(\d+)")
        try:
            yield f"sc://{HOST}:{port}"
        finally:
            _end(self._processes.pop())

    def stop(self) -> None:
        """End all processes, the youngest first."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            _end(process)

    def _start(self, arguments: list[str]) -> Path:
        log = self.folder / f"{len(self._processes)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self._home / "bin" / "spark-class", *arguments],
                env=self._environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=self.folder,
            )  # fmt: skip
        self._processes.append(process)
        return log

    def _wait(self, log: Path, pattern: str) -> str:
        process = self._processes[-1]

        def find() -> re.Match[str] | None:
            assert process.poll() is None, log.read_text()[-3_000:]
            return re.search(pattern, log.read_text())

        return wait_until(find, lambda: log.read_text()[-3_000:], START_S, every=0.2)[1]
