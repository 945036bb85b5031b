"""Files of `key=value` lines, as Java and librdkafka read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trilogue.client.errors import InvalidOption

KEY: Final = re.compile(r"[\w.-]+")


def read_keys(path: Path) -> Iterator[tuple[int, str, str]]:
    """Return line number, key and value of each line of a properties file; InvalidOption."""
    try:
        lines = _join_lines(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text"
        raise InvalidOption(f"{path}: {reason}") from error
    for number, line in lines:
        separator = re.search("[=:]", line)
        if separator is None or not KEY.fullmatch(line[: separator.start()].strip()):
            raise InvalidOption(f"{path}, line {number}: a line is key=value")
        yield number, line[: separator.start()].strip(), line[separator.end() :].strip()


def _join_lines(content: str) -> list[tuple[int, str]]:
    """Return the lines with a property, with the number of their first line."""
    joined: list[tuple[int, str]] = []
    begun: tuple[int, str] | None = None
    for number, raw in enumerate(content.splitlines(), 1):
        line = raw.strip()
        if begun is None and (not line or line.startswith(("#", "!"))):
            continue
        first, before = begun or (number, "")
        goes_on = line.endswith("\\") and (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if goes_on:
            begun = first, before + line[:-1]
        else:
            joined.append((first, before + line))
            begun = None
    return joined if begun is None else [*joined, begun]
