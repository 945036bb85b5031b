"""The steps of the demo: a progress bar while a step runs, a row of the report afterwards."""

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
    """The demo cannot continue; the text is printed."""


@dataclass
class StepResult:
    """Rows in and out of one step and its seconds; None where nothing is counted."""

    step: str
    rows_in: int | None = None
    rows_out: int | None = None
    seconds: float | None = None


@dataclass
class Steps:
    """The results so far, and the progress bars on the screen."""

    progress: Progress
    rows: list[StepResult] = field(default_factory=list)

    @contextmanager
    def step(
        self, name: str, total: int | None = None
    ) -> Iterator[tuple[StepResult, Callable[[int], None]]]:
        """Time the body, which fills in the row and calls the function with the rows done."""
        bar: TaskID = self.progress.add_task(name, total=total)
        row = StepResult(name)
        began = time.monotonic()
        yield row, lambda done: self.progress.update(bar, completed=done)
        row.seconds = time.monotonic() - began
        done = total or 1
        self.progress.update(bar, total=done, completed=done)
        self.rows.append(row)


@contextmanager
def show_steps(console: Console) -> Iterator[Steps]:
    """Show progress bars of at most 80 columns, which stay when they are full."""
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

    class RowCount(ProgressColumn):
        """Rows done of rows in all; empty for a step that counts none."""

        def render(self, task: Task) -> Text:
            if task.total is None or task.total == 1:
                return Text("")
            return Text(f"{task.completed:,.0f} / {task.total:,.0f}", justify="right")

    columns = (
        SpinnerColumn(finished_text="[green]✓[/]"),
        TextColumn("{task.description:<30}"),
        BarColumn(bar_width=16),
        RowCount(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield Steps(progress)
