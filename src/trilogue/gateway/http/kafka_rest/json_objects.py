"""JSON objects one after the other, cut out of a body that comes in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

SIGNS: Final = re.compile(rb'["\\{}\[\]]')
IN_TEXT: Final = re.compile(rb'["\\]')
SPACE: Final = b" \t\r\n,"  # a comma between objects does no harm


class JsonObjects:
    """Finds where objects end; each byte is looked at once."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._position = 0
        self._depth = 0
        self._is_in_text = False

    def __len__(self) -> int:
        """Bytes of the object that is not whole yet."""
        return len(self._buffer)

    def add(self, piece: bytes) -> Iterator[bytes]:
        """Iterate over the objects that a piece completes; raises ValueError for other values."""
        self._buffer += piece
        while True:
            if not self._depth:
                self._skip_space()
                if not self._buffer:
                    return
            end = self._find_end()
            if not end:
                return
            found = bytes(self._buffer[:end])
            del self._buffer[:end]
            self._position = 0
            yield found

    def _skip_space(self) -> None:
        length = len(self._buffer) - len(self._buffer.lstrip(SPACE))
        del self._buffer[:length]
        if self._buffer and self._buffer[:1] != b"{":
            raise ValueError("a record is a JSON object")

    def _find_end(self) -> int:
        """Return where the first object ends; 0 where it is not whole."""
        while True:
            signs = IN_TEXT if self._is_in_text else SIGNS
            found = signs.search(self._buffer, self._position)
            if found is None:
                self._position = len(self._buffer)
                return 0
            sign = found.group()
            if sign == b"\\":
                if found.end() >= len(self._buffer):  # the next byte comes with the next piece
                    self._position = found.start()
                    return 0
                self._position = found.end() + 1
                continue
            self._position = found.end()
            if sign == b'"':
                self._is_in_text = not self._is_in_text
            else:
                self._depth += 1 if sign in b"{[" else -1
                if not self._depth:
                    return self._position
