"""Runs the Python blocks of one page in one process and one namespace, as a reader would type them.

Started by `test_examples.py`: takes blocks from stdin, answers each with what it printed as a line
of JSON; null begins another page. A process of its own, so that what a page starts (Spark, foreign
clients) ends with it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback


def make_namespace() -> dict[str, object]:
    return {"__name__": "__main__"}


def stop_spark() -> None:
    """Stop the session that a page left; its Java stays for the next page."""
    if "pyspark.sql" not in sys.modules:
        return
    from pyspark.sql import SparkSession

    left = SparkSession.getActiveSession()
    if left is not None:
        left.stop()


def main() -> None:
    namespace = make_namespace()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what children print must not get between the answers
    for line in sys.stdin:
        printed = io.StringIO()
        problem = ""
        block = json.loads(line)
        if block is None:
            namespace = make_namespace()
            stop_spark()
            block = ""
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(block, "<page>", "exec"), namespace)
            except BaseException:  # noqa: BLE001 - reported to the test, whatever it is
                problem = traceback.format_exc()
        answers.write(json.dumps({"printed": printed.getvalue(), "problem": problem}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
