"""Settings by which a session of Spark spends its time on small data, not on preparing for large.

No code is generated for a plan, and Java's compiler stops at its first level: a test runs a plan
once, over a few rows. One partition after a shuffle, since each is a task.
"""

from __future__ import annotations

from pathlib import Path

QUICK_SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}


def write_defaults(folder: Path) -> Path:
    """Write them as spark-defaults.conf of a folder for SPARK_CONF_DIR, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} {value}\n" for name, value in QUICK_SETTINGS.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return folder
