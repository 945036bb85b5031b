"""The last words of an orderly end are written like all others: an error there is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers import Trilogue
from tests.crash.faults import injected, require_strace
from tests.node.clients import produce
from trilogue.node.errors import STORAGE_FAILED


@pytest.mark.timeout(60)
def test_an_end_that_cannot_be_written_does_not_look_orderly(trilogue: Trilogue, tmp_path: Path):
    """A failed write makes the exit code non-zero, also when it is the last one."""
    require_strace()
    trilogue.start()
    produce(trilogue.running, "t", [b"acked"])
    folder = trilogue.data / "journal"
    # also those of files that are only being made: the last words may go to one of them
    files = [folder / f"{number:016d}.journal" for number in range(1, 9)]

    with injected(trilogue.pid, "error=EIO:when=1+", files, tmp_path / "strace.log"):
        code = trilogue.running.stop()

    assert code == STORAGE_FAILED
    assert "journal.failed" in trilogue.output
