"""The commands of each page are run in their order, in an empty directory.

    ```sh               run by a shell; `trilogue serve ...` starts the server, or starts it again
    ```python           run in one Python process per page; pages with Spark share one and its Java
    ```output           what the block before must have printed
    ```text, console    shown only

The pages speak of the default addresses and of one directory outside; those of the started server,
and one in the empty directory, are put in their place.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.servers.probe import free_port

from tests.docs.page import ROOT, blocks
from tests.server import Server, clean_environment, start_server
from tests.spark.quick import write_defaults
from tests.tools import require, require_program

KAFKA, HTTP, PULSAR = "127.0.0.1:9092", "127.0.0.1:8080", "127.0.0.1:6650"
TUBEMQ = "127.0.0.1:8715"
LISTENERS = ("kafka", "http", "pulsar", "tubemq-master", "tubemq-broker")
ARCHIVE = "/srv/archive"
QUICK = ["docs/tutorial/first-topic.md", "docs/how-to/debug.md", "docs/how-to/object-storage.md"]
QUICK += ["docs/how-to/use-the-command-line.md", "docs/how-to/secure-a-node.md"]
QUICK += ["docs/how-to/use-transactions.md", "docs/how-to/test-with-trilogue.md"]
QUICK += [f"docs/how-to/use-the-{name}-client.md" for name in ("kafka", "pulsar", "tubemq")]
SPARK = ["README.md", "docs/tutorial/first-pipeline.md", "docs/how-to/read-from-spark.md"]


class PagePython:
    """The Python process that runs the blocks of pages; started with the first block."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None

    def run(self, text: str, environment: dict[str, str]) -> str:
        """Return what a block prints; its error fails the test."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(ROOT / "tests/docs/runner.py")],
                cwd=self._directory,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        answer = self._ask(text)
        assert not answer["problem"], f"{text}\n{answer['problem']}"
        return answer["printed"]

    def begin_page(self) -> None:
        """Forget what the page before defined, and stop its session of Spark."""
        if self._process is not None:
            self._ask(None)

    def _ask(self, text: str | None) -> dict[str, str]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(text) + "\n")
        self._process.stdin.flush()
        found: dict[str, str] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait(120)
            self._process.stdout.close()


class Typist:
    """Types one page."""

    def __init__(self, directory: Path, python: PagePython) -> None:
        self.directory = directory
        self.server: Server | None = None
        self.printed = ""
        ports: set[int] = set()
        while len(ports) < len(LISTENERS):  # a port that is free again may come twice
            ports.add(free_port())
        self._listen = {
            listener: f"127.0.0.1:{port}" for listener, port in zip(LISTENERS, ports, strict=True)
        }
        self._python = python

    def type(self, page: Path) -> None:
        for kind, text in blocks(page):
            if kind == "sh" and text.startswith("trilogue serve"):
                self._serve(text)
            elif kind == "sh":
                self.printed = self._shell(self._here(text))
            elif kind == "python":
                self.printed = self._python.run(self._here(text), self._environment())
            elif kind == "output":
                assert text.strip() == self.printed.strip()

    def close(self) -> None:
        if self.server is not None:
            self.server.kill9()

    def _serve(self, text: str) -> None:
        """Start the server with the page's own arguments; one that runs is stopped before."""
        if self.server is not None:
            assert self.server.stop() == 0
        text = self._here(text).replace("\\\n", " ")
        arguments = shlex.split(text, comments=True)[2:]
        data = self.directory / arguments[arguments.index("--data") + 1]
        del arguments[arguments.index("--data") : arguments.index("--data") + 2]
        self.server = start_server(data, listen=self._listen, arguments=arguments)

    def _here(self, text: str) -> str:
        text = text.replace(ARCHIVE, f"{self.directory}/archive")
        text = text.replace(PULSAR, self._listen["pulsar"])
        text = text.replace(TUBEMQ, self._listen["tubemq-master"])
        return text.replace(KAFKA, self._listen["kafka"]).replace(HTTP, self._listen["http"])

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        default = {
            "TRILOGUE_BOOTSTRAP": self._listen["kafka"],
            "TRILOGUE_HTTP": self._listen["http"],
        }
        return clean_environment({"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", **default})

    def _shell(self, text: str) -> str:
        for line in text.splitlines():
            words = [part.split()[0] for part in line.split("|") if part.split()]
            if "kcat" in words:
                require_program("kcat")
        done = subprocess.run(
            ["sh", "-e", "-c", text],
            cwd=self.directory,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def typist(tmp_path: Path) -> Iterator[Typist]:
    python = PagePython(tmp_path)
    made = Typist(tmp_path, python)
    yield made
    python.close()
    made.close()
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture(scope="module")
def spark_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, PagePython]]:
    """One process for the pages with Spark: a Java starts in half a minute."""
    folder = tmp_path_factory.mktemp("pages")
    python = PagePython(folder)
    yield folder, python
    python.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def spark_typist(spark_python: tuple[Path, PagePython]) -> Iterator[Typist]:
    folder, python = spark_python
    made = Typist(folder, python)
    yield made
    python.begin_page()
    made.close()
    for each in folder.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", QUICK)
def test_examples_of_a_page_run(typist: Typist, page: str):
    typist.type(ROOT / page)


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", SPARK)
def test_examples_of_a_page_with_spark_run(
    spark_typist: Typist, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The reader has a Java; where this machine has none it is the one from PyPI.

    Spark gives each process that plans a source 10 s: on a busy machine it must not compile first
    what it imports, as it does from the zip of an ordinary SPARK_HOME.
    """
    import pyspark

    from trilogue.spark.local_session import find_java, find_spark_home

    spark_home = find_spark_home(Path(pyspark.__file__).parent, tmp_path / "spark")
    home = find_java(tmp_path / "java")
    require("java", found=home)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("SPARK_HOME", str(spark_home))
    monkeypatch.setenv("SPARK_CONF_DIR", str(write_defaults(tmp_path / "conf")))

    spark_typist.type(ROOT / page)


def test_every_page_with_code_to_run_is_run():
    with_code = {
        str(page.relative_to(ROOT))
        for folder in ("tutorial", "how-to", "explanation")
        for page in (ROOT / "docs" / folder).rglob("*.md")
        if any(kind in {"python", "sh"} for kind, _ in blocks(page))
    }

    assert with_code <= {*QUICK, *SPARK}
