"""Which system calls make a window durable, as the kernel sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.log.test_commit import KINDS
from tests.tools import require_program

SCRIPT = """
import asyncio, sys
from pathlib import Path
from tests.log.test_commit import KINDS, block
from trilogue.log.files import BLOCK, OsFileSystem

async def main():
    file = OsFileSystem().open(Path(sys.argv[2]), create=True)
    file.pwrite(bytes(2 * BLOCK), 0)
    told = asyncio.Queue()
    committer = KINDS[sys.argv[1]](asyncio.get_running_loop())
    committer.start(told.put_nowait)
    for at in range(4):  # two into the file, then two that make it longer
        committer.submit(file, block(b"x"), at * BLOCK)
        assert await told.get() == 0
    committer.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_that_makes_the_file_longer_is_synced_once_more(tmp_path: Path, kind: str) -> None:
    require_program("strace")
    seen = tmp_path / "calls"
    traced = ["strace", "-f", "-qq", "-e", "trace=pwritev2,fdatasync", "-o", str(seen)]

    subprocess.run(
        [*traced, sys.executable, "-c", SCRIPT, kind, str(tmp_path / "file")], check=True
    )

    calls = [line.split()[1].split("(")[0] for line in seen.read_text().splitlines() if "(" in line]
    write, sync = "pwritev2", "fdatasync"
    prepared = [write]
    assert calls == [*prepared, write, write, write, sync, write, sync]
