"""tools/stalls.py: a command's processes stand still now and then."""

from __future__ import annotations

import signal
import subprocess
import sys

from tools.stalls import read_stat, run, stall

from tests.waiting import wait_until

CHILD = """
import time
before = now = time.monotonic()
while now - before < 0.2:
    before, now = now, time.monotonic()
"""
PARENT = (
    f"import subprocess, sys; sys.exit(7 + subprocess.call([sys.executable, '-c', '''{CHILD}''']))"
)


def test_a_process_of_the_command_stands_still_and_its_exit_code_is_returned():
    assert run([sys.executable, "-c", PARENT], seed=1, longest_s=0.4) == 7


def test_a_process_that_a_test_has_stopped_stays_stopped():
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            process.send_signal(signal.SIGSTOP)
            wait_until(lambda: read_stat(process.pid)[0] == "T")

            stall(process.pid, 0)

            assert read_stat(process.pid)[0] == "T"
        finally:
            process.kill()
