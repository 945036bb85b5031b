"""A data directory that this user may not read: one line and exit code 1."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.server import clean_environment, command_line

WITHOUT_OVERRIDE = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"""Root reads every directory unless it lacks these capabilities."""
NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a directory to another user")
@pytest.mark.parametrize("verb", ["serve", "doctor"])
def test_a_directory_of_another_user_is_one_line_and_exit_code_1(verb: str, tmp_path: Path):
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    os.chown(data, NOBODY, NOBODY)
    result = subprocess.run(
        [*WITHOUT_OVERRIDE, *command_line(verb, "--data", str(data))],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=110,
        check=False,
    )

    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("trilogue: the data directory: Permission denied: ")
    assert str(data) in line
