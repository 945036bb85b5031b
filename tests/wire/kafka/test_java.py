"""Oracle: Kafka's own Java classes decode and encode our bytes, in every version."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tools import require, require_program
from tests.wire.kafka.definitions import RELEASES, definition, find_jar, require_definitions
from tests.wire.kafka.instances import SPOKEN, Spoken, messages, quick
from trilogue.wire.kafka.codec.compile import decoder, encoder

SLF4J = ".m2/repository/org/slf4j/slf4j-api/*/slf4j-api-*.jar"
PROGRAM = Path(__file__).with_name("Rewrite.java")
few = settings(
    max_examples=5, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)
pytestmark = pytest.mark.java


def class_path(release: str) -> str:
    """The clients and slf4j, which their records need; `make jars` fetches both."""
    jar = find_jar(release)
    assert jar is not None
    logging = [*jar.parent.glob("slf4j-api-*.jar"), *Path.home().glob(SLF4J)]
    require("slf4j-api", found=logging)
    return os.pathsep.join([str(jar), str(logging[0])])


class Java:
    """A Java process that answers each line with the bytes of Kafka's class."""

    def __init__(self, release: str) -> None:
        self.release = release
        self._process = subprocess.Popen(
            ["java", "-XX:TieredStopAtLevel=1", "-cp", class_path(release), str(PROGRAM)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, bufsize=1,
        )  # fmt: skip

    def rewrite(self, cls: type, version: int, raw: bytes) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{cls.__name__} {version} {raw.hex()}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module", params=RELEASES)
def java(request: pytest.FixtureRequest) -> Iterator[Java]:
    require_program("javac")
    require_definitions(request.param)
    process = Java(request.param)
    yield process
    process.close()


@pytest.mark.parametrize("spoken", [quick(each) for each in SPOKEN])
@few
@given(data=st.data())
def test_java_reads_ours_and_writes_the_same_bytes(java: Java, spoken: Spoken, data: st.DataObject):
    cls, version = spoken
    theirs = definition(java.release, cls.__name__)
    if theirs is None or not theirs.first <= version <= theirs.last:
        return
    message = data.draw(messages(cls, version))
    ours = bytearray()
    encoder(cls, version)(message, ours)

    again = java.rewrite(cls, version, bytes(ours))

    assert again == ours.hex()
    assert decoder(cls, version)(bytes.fromhex(again)) == (message, len(ours))
