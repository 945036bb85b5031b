"""A process that changes meta until it is killed, and prints what was acknowledged.

Commit n puts a setting and a snapshot and moves flushed_through to n: all three or none.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from trilogue.meta.operations import PutSetting, PutSnapshot, SetFlushedThrough
from trilogue.meta.sqlite import SqliteMeta

AT_ONCE = 4


async def main(meta: SqliteMeta) -> None:
    async def one(number: int) -> None:
        value = str(number) * 50
        await meta.write(
            [
                PutSetting("last", str(number)),
                PutSnapshot(number.to_bytes(8, "big"), value.encode()),
                SetFlushedThrough(number),
            ]
        )
        sys.stdout.write(f"{number} {meta.allocate('segment')}\n")
        sys.stdout.flush()

    number = meta.state.flushed_through
    while True:
        await asyncio.gather(*(one(number + each + 1) for each in range(AT_ONCE)))
        number += AT_ONCE


if __name__ == "__main__":
    asyncio.run(main(SqliteMeta.open(Path(sys.argv[1]))))
