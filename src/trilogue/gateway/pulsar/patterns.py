"""Which topics a pattern means, in a time that no pattern can make long.

Clients write patterns as Java regular expressions and would evaluate them by themselves; a broker
may do it for them. Python's engine tries every way to match, so a pattern of fifty characters can
keep it busy for years, and nothing can stop it. So only patterns are read here that need no such
search: characters, `.` and sets each match one character, `.*` and `.+` any number. Between two of
the latter the first place that fits is as good as any later one.

Any other pattern is none for us: its client gets all names, and filters them, as it does with a
broker that cannot filter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LENGTH_MAX = 256  # a real broker reads 50 by default
_ATOM = re.compile(
    r"""
    \\(?P<class>[dDwWsS])               # a class of characters that Java and Python agree about
  | \\(?P<escaped>[^a-zA-Z0-9])         # any sign, taken as it is
  | (?P<any>\.)                         # any character
  | (?P<set>\[\^?(?:[\w.:/ ~@%-])+\])   # a set of plain characters and ranges
  | (?P<plain>[^\\\[\](){}*+?|^$&])     # a character that means itself
    """,
    re.VERBOSE | re.DOTALL,
)


class Unreadable(Exception):
    """A pattern that would need a search, or that is none."""


class TopicPattern:
    """A pattern over names without their domain: `tenant/namespace/topic`."""

    def __init__(self, text: str) -> None:
        """Read one, with or without a domain; Unreadable."""
        if len(text) > LENGTH_MAX:
            raise Unreadable(f"a pattern of more than {LENGTH_MAX} characters")
        _, separator, rest = text.partition("://")
        self._pieces = list(_pieces(rest if separator else text))

    def matches(self, name: str) -> bool:
        """Whether a whole name is meant."""
        at = 0
        last = len(self._pieces) - 1
        for number, (piece, length, before) in enumerate(self._pieces):
            # `before`: the fewest characters in front of it, None where it begins right here.
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
    """Cut a pattern at its wildcards: pieces of fixed length, and what may stand before each."""
    text = text.removeprefix("^").removesuffix("$") if not text.endswith("\\$") else text
    piece: list[str] = []
    before: int | None = None
    at = 0
    while at < len(text):
        atom = _ATOM.match(text, at)
        if atom is None:
            raise Unreadable("a pattern that only its client can evaluate")
        at = atom.end()
        sign = text[at : at + 1]
        if sign in {"*", "+"}:
            if atom["any"] is None or text[at + 1 : at + 2] in {"?", "+", "*", "{"}:
                raise Unreadable("only `.*` and `.+` may stand for any number of characters")
            at += 1
            yield _compiled(piece, before)
            piece, before = [], int(sign == "+")
        elif sign in {"?", "{"}:
            raise Unreadable("a pattern that only its client can evaluate")
        else:
            piece.append(atom[0])
    yield _compiled(piece, before)


def _compiled(atoms: list[str], before: int | None) -> tuple[re.Pattern[str], int, int | None]:
    try:
        return re.compile("".join(atoms), re.DOTALL | re.ASCII), len(atoms), before
    except re.error as error:
        raise Unreadable(str(error)) from error
