"""`trilogue version`."""

from __future__ import annotations

import typer

from trilogue import __version__


def version() -> None:
    """Print the version."""
    typer.echo(f"trilogue {__version__}")
