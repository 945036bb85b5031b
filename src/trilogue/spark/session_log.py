"""Where a session of a command writes what Java prints: to files, not to the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STDERR = 2


def log_settings(folder: Path) -> dict[str, str]:
    """Return settings for a short run that logs to `spark.log` in a folder.

    With the second compiler (C2) off, the JVM needs a quarter less CPU time for a run this short.
    """
    config = folder / "log4j2.properties"
    config.write_text(
        "rootLogger.level=warn\nrootLogger.appenderRef.file.ref=file\n"
        "appender.file.type=File\nappender.file.name=file\n"
        f"appender.file.fileName={folder / 'spark.log'}\n"
        "appender.file.layout.type=PatternLayout\n"
        "appender.file.layout.pattern=%d{ISO8601} %p %c{1}: %m%n\n"
    )
    return {
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile=file:{config} -XX:TieredStopAtLevel=1"
        ),
        "spark.ui.showConsoleProgress": "false",
    }


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Redirect stderr of processes started meanwhile to a file: Java warns about its options."""
    kept = os.dup(STDERR)
    with path.open("ab") as file:
        os.dup2(file.fileno(), STDERR)
    try:
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)
