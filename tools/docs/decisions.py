"""The list of decision records, from their first lines."""

from __future__ import annotations

from tools.docs.blocks import ROOT, table

FOLDER = ROOT / "docs" / "decisions"


def decisions() -> str:
    """Number, title and status of every record."""
    rows = []
    for path in sorted(FOLDER.glob("[0-9]*.md")):
        number, _, title = path.read_text().partition("\n")[0].removeprefix("# ").partition(": ")
        if number.isdecimal() and int(number):
            rows.append((f"[{number}]({path.name})", title, _status(path.read_text())))
    return table(("", "decision", "status"), rows)


def _status(text: str) -> str:
    return next(
        line.removeprefix("Status: ") for line in text.splitlines() if line.startswith("Status: ")
    )
