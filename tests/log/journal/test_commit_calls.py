"""Which system calls make a window durable, as the kernel sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.log.journal.test_commit import KINDS
from tests.tools import require_program

SCRIPT = """
import asyncio, sys
from pathlib import Path
from tests.log.journal.test_commit import KINDS, block
from trilogue.log.files import BLOCK, OsFileSystem

async def main():
    file = OsFileSystem().open(Path(sys.argv[2]), create=True)
    file.pwrite(bytes(2 * BLOCK), 0)
    sizes = asyncio.Queue()
    committer = KINDS[sys.argv[1]](asyncio.get_running_loop())
    committer.start(sizes.put_nowait)
    for at in range(4):  # two into the file, then two that make it longer
        committer.submit(file, block(b"x"), at * BLOCK)
        assert await sizes.get() == 0
    committer.close()

asyncio.run(main())
"""


def calls_of(directory: Path, kind: str, traced: str) -> list[str]:
    require_program("strace")
    seen, file = directory / "calls", directory / "file"
    trace = ["strace", "-f", "-qq", "-P", str(file), "-e", f"trace={traced}", "-o", str(seen)]

    subprocess.run([*trace, sys.executable, "-c", SCRIPT, kind, str(file)], check=True)

    return [line.split()[1].split("(")[0] for line in seen.read_text().splitlines() if "(" in line]


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_that_makes_the_file_longer_is_synced_once_more(tmp_path: Path, kind: str) -> None:
    write, sync = "pwritev2", "fdatasync"
    prepared = [write]

    calls = calls_of(tmp_path, kind, f"{write},{sync}")

    assert calls == [*prepared, write, write, write, sync, write, sync]


@pytest.mark.parametrize("kind", KINDS)
def test_no_call_queries_the_time_of_a_write(tmp_path: Path, kind: str) -> None:
    """The next one would have to set a new one, on a disk that writes it (see commit.pxd)."""
    assert calls_of(tmp_path, kind, "?fstat,?newfstatat,?statx") == []


@pytest.mark.skipif("native" not in KINDS, reason="not compiled")
def test_the_length_is_queried_only_where_a_write_passes_what_is_known(tmp_path: Path) -> None:
    first, longer = ["lseek"], ["lseek", "lseek"]

    assert calls_of(tmp_path, "native", "lseek") == [*first, *longer]
