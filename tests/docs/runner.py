"""Runs the Python blocks of one page in one process and one namespace, as a reader would type them.

Started by `test_examples.py`: takes blocks from stdin, answers each with what it printed as a line
of JSON. A process of its own, so that what a page starts (Spark, foreign clients) ends with it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback


def main() -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what children print must not get between the answers
    for line in sys.stdin:
        printed = io.StringIO()
        problem = ""
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(json.loads(line), "<page>", "exec"), namespace)
            except BaseException:  # noqa: BLE001 - reported to the test, whatever it is
                problem = traceback.format_exc()
        answers.write(json.dumps({"printed": printed.getvalue(), "problem": problem}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
