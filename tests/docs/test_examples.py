"""The commands of each page are run in their order, in an empty directory.

    ```sh               run by a shell; `trilogue serve ...` starts the server, or starts it again
    ```python           run in one Python process per page
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


class Typist:
    """Types one page."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.server: Server | None = None
        self.printed = ""
        ports: set[int] = set()
        while len(ports) < len(LISTENERS):  # a port that is free again may come twice
            ports.add(free_port())
        self._listen = {
            listener: f"127.0.0.1:{port}" for listener, port in zip(LISTENERS, ports, strict=True)
        }
        self._python: subprocess.Popen[str] | None = None

    def type(self, page: Path) -> None:
        for kind, text in blocks(page):
            if kind == "sh" and text.startswith("trilogue serve"):
                self._serve(text)
            elif kind == "sh":
                self.printed = self._shell(self._here(text))
            elif kind == "python":
                self.printed = self._run(self._here(text))
            elif kind == "output":
                assert text.strip() == self.printed.strip()

    def close(self) -> None:
        if self._python is not None:
            assert self._python.stdin is not None
            assert self._python.stdout is not None
            self._python.stdin.close()
            self._python.wait(60)
            self._python.stdout.close()
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
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _run(self, text: str) -> str:
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, str(ROOT / "tests/docs/runner.py")],
                cwd=self.directory,
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        self._python.stdin.write(json.dumps(text) + "\n")
        self._python.stdin.flush()
        answer = json.loads(self._python.stdout.readline())
        assert not answer["problem"], f"{text}\n{answer['problem']}"
        return answer["printed"]


@pytest.fixture
def typist(tmp_path: Path) -> Iterator[Typist]:
    made = Typist(tmp_path)
    yield made
    made.close()
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.parametrize("page", QUICK)
def test_examples_of_a_page_run(typist: Typist, page: str):
    typist.type(ROOT / page)


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", SPARK)
def test_examples_of_a_page_with_spark_run(
    typist: Typist, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The reader has a Java; where this machine has none it is the one from PyPI."""
    from trilogue.spark.local_session import find_java

    home = find_java(tmp_path / "java")
    require("java", found=home)
    monkeypatch.setenv("JAVA_HOME", str(home))

    typist.type(ROOT / page)


def test_every_page_with_code_to_run_is_run():
    with_code = {
        str(page.relative_to(ROOT))
        for folder in ("tutorial", "how-to", "explanation")
        for page in (ROOT / "docs" / folder).rglob("*.md")
        if any(kind in {"python", "sh"} for kind, _ in blocks(page))
    }

    assert with_code <= {*QUICK, *SPARK}
