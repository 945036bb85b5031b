"""The steps of the demo: a progress bar each while it works, a row of the report afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class DemoFailed(Exception):
    """The demo cannot go on; the text is for whoever runs it."""


@dataclass
class Row:
    """What went in and out of one step, and how long it took; None where nothing is counted."""

    step: str
    rows_in: int | None = None
    rows_out: int | None = None
    seconds: float | None = None


@dataclass
class Steps:
    """The rows so far, and the bars on the screen."""

    progress: Progress
    rows: list[Row] = field(default_factory=list)

    @contextmanager
    def step(
        self, name: str, total: int | None = None
    ) -> Iterator[tuple[Row, Callable[[int], None]]]:
        """Run one step: fill in the row it gives, and call the other with what is done so far."""
        bar: TaskID = self.progress.add_task(name, total=total)
        row = Row(name)
        began = time.monotonic()
        yield row, lambda done: self.progress.update(bar, completed=done)
        row.seconds = time.monotonic() - began
        done = total or 1
        self.progress.update(bar, total=done, completed=done)
        self.rows.append(row)


@contextmanager
def steps(console: Console) -> Iterator[Steps]:
    """Bars that fit into 80 columns, and stay when they are full."""
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    class Rows(ProgressColumn):
        """How many rows of how many; nothing where rows are not what is counted."""

        def render(self, task: Task) -> Text:
            if task.total is None or task.total == 1:
                return Text("")
            return Text(f"{task.completed:,.0f} / {task.total:,.0f}", justify="right")

    columns = (
        SpinnerColumn(finished_text="[green]✓[/]"),
        TextColumn("{task.description:<30}"),
        BarColumn(bar_width=16),
        Rows(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield Steps(progress)
