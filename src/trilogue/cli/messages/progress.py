"""Progress of a long run: one line on a terminal, overwritten, and removed at the end."""

from __future__ import annotations

import os
import sys
import time
from typing import Final

from trilogue.cli.tables import spell_count, spell_size

EVERY_S: Final = 0.2
CLEAR: Final = "\r\x1b[K"


class Progress:
    """Counts, and draws on stderr if that is a terminal and not `quiet`."""

    def __init__(self, doing: str, *, of_bytes: int | None = None, quiet: bool = False) -> None:
        self.count = 0
        self.size_bytes = 0
        self._doing = doing
        self._of_bytes = of_bytes
        self._began = time.monotonic()
        self._shown = self._began
        self._is_drawn = False
        self._may = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def add(self, count: int, size_bytes: int) -> None:
        """Add to the counts."""
        self.count += count
        self.size_bytes += size_bytes
        if self._may:
            now = time.monotonic()
            if now - self._shown >= EVERY_S:
                self._shown = now
                self._draw()

    def _draw(self) -> None:
        share = ""
        if self._of_bytes:
            share = f" ({min(100, 100 * self.size_bytes // self._of_bytes)} %)"
        print(f"{CLEAR}{self._doing} {self.summary}{share}", end="", file=sys.stderr, flush=True)
        self._is_drawn = True

    @property
    def summary(self) -> str:
        """`12,000 messages, 3.1 MiB in 0.4 s, 30,000/s`."""
        seconds = max(time.monotonic() - self._began, 0.001)
        rate = int(self.count / seconds)
        size = spell_size(self.size_bytes)
        return f"{spell_count(self.count, 'message')}, {size} in {seconds:.1f} s, {rate:,}/s"

    def end(self, detail: str = "") -> None:
        """Remove the line, and print a summary on a terminal."""
        if self._is_drawn:
            print(CLEAR, end="", file=sys.stderr, flush=True)
        if detail and self._may:
            print(f"{detail} {self.summary}", file=sys.stderr)
