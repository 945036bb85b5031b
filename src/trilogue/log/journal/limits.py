"""How large and how old a journal's windows and files may grow, and what it counts."""

from __future__ import annotations

import msgspec


class JournalLimits(msgspec.Struct, frozen=True):
    """Limits of windows and files, and the disk space that has to stay free."""

    window_bytes: int = 8 << 20
    interval_s: float = 0.01  # how long deferred entries may stay in a window
    queued_windows: int = 4  # full windows that wait for the disk
    file_bytes: int = 64 << 20
    first_file_bytes: int = 8 << 20
    file_entries: int = 100_000
    file_age_ms: int = 60_000
    min_free_bytes: int = 128 << 20


class JournalCounts(msgspec.Struct):
    """Counts since the start, for metrics."""

    commits: int = 0
    entries: int = 0
    facts: int = 0
    bytes_written: int = 0  # with headers and padding
    files_sealed: int = 0
    spares_late: int = 0
