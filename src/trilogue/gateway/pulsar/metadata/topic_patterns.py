"""Topic patterns that match in linear time.

A pattern is a Java regular expression, which clients can evaluate by themselves and a broker may
evaluate for them. Python's engine backtracks, so a pattern of fifty characters can keep it busy for
years, and it cannot be interrupted. Therefore only patterns without backtracking are supported:
characters, `.` and sets each match one character, `.*` and `.+` any number. Between two of the
latter the first position that fits is as good as any later one.

For any other pattern a client gets all names and filters them, as with a broker that cannot filter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LENGTH_MAX = 256  # characters; Apache Pulsar takes 50 by default
_ATOM = re.compile(
    r"""
    \\(?P<class>[dDwWsS])               # a character class that is the same in Java and Python
  | \\(?P<escaped>[^a-zA-Z0-9])         # an escaped punctuation character
  | (?P<any>\.)                         # any character
  | (?P<set>\[\^?(?:[\w.:/ ~@%-])+\])   # a set of plain characters and ranges
  | (?P<plain>[^\\\[\](){}*+?|^$&])     # a literal character
    """,
    re.VERBOSE | re.DOTALL,
)


class UnsupportedPattern(Exception):
    """A pattern that needs backtracking, or that is not valid."""


class TopicPattern:
    """A pattern over names without their domain: `tenant/namespace/topic`."""

    def __init__(self, text: str) -> None:
        """Parse a pattern, with or without a domain; raises UnsupportedPattern."""
        if len(text) > LENGTH_MAX:
            raise UnsupportedPattern(f"a pattern of more than {LENGTH_MAX} characters")
        _, separator, rest = text.partition("://")
        self._pieces = list(_pieces(rest if separator else text))

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        at = 0
        last = len(self._pieces) - 1
        for number, (piece, length, before) in enumerate(self._pieces):
            # `before`: the least number of characters before the piece; None: it begins here.
            if before is None:
                found = piece.match(name, at)
                if found is None:
                    return False
                at = found.end()
                if number == last:
                    return at == len(name)
            elif number == last:
                start = len(name) - length
                return start >= at + before and piece.match(name, start) is not None
            else:
                found = piece.search(name, at + before) if at + before <= len(name) else None
                if found is None:
                    return False
                at = found.end()
        return False


def _pieces(text: str) -> Iterator[tuple[re.Pattern[str], int, int | None]]:
    """Split a pattern at its wildcards: pieces of fixed length, and what may precede each."""
    text = text.removeprefix("^").removesuffix("$") if not text.endswith("\\$") else text
    piece: list[str] = []
    before: int | None = None
    at = 0
    while at < len(text):
        atom = _ATOM.match(text, at)
        if atom is None:
            raise UnsupportedPattern("a pattern that only its client can evaluate")
        at = atom.end()
        sign = text[at : at + 1]
        if sign in {"*", "+"}:
            if atom["any"] is None or text[at + 1 : at + 2] in {"?", "+", "*", "{"}:
                raise UnsupportedPattern(
                    "only `.*` and `.+` may stand for any number of characters"
                )
            at += 1
            yield _compiled(piece, before)
            piece, before = [], int(sign == "+")
        elif sign in {"?", "{"}:
            raise UnsupportedPattern("a pattern that only its client can evaluate")
        else:
            piece.append(atom[0])
    yield _compiled(piece, before)


def _compiled(atoms: list[str], before: int | None) -> tuple[re.Pattern[str], int, int | None]:
    try:
        return re.compile("".join(atoms), re.DOTALL | re.ASCII), len(atoms), before
    except re.error as error:
        raise UnsupportedPattern(str(error)) from error
