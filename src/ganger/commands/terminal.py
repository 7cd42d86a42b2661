"""What commands print: tables, JSON, and how far they are."""

import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from tyro.conf import arg

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_PLAIN_LINE_S = 10.0  # between two lines of progress where there is no terminal


def optional(metavar: str, name: str | None = None) -> Any:
    """A flag that may be left out; its help says what happens then."""
    return arg(metavar=metavar, name=name, help_behavior_hint="")


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def print_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Aligned columns: words to the left, figures to the right; an empty head is left out."""
    body = [[shown(cell) for cell in row] for row in rows]
    table = [[*head], *body] if any(head) else body
    columns = list(zip(*table, strict=True))
    widths = [max(map(len, column)) for column in columns]
    figures = [any(cell[:1].isdigit() for cell in column) for column in columns]
    for row in table:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, figures, strict=True)
        ]
        print("  ".join(cells).rstrip())


def count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:,.3g}"


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:,.3f}"
    if value is None or value == ():
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


class Progress:
    """How far a command is, on standard error: a bar on a terminal, else a line now and then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._last = time.monotonic()
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(20),
                TaskProgressColumn(),
                TextColumn("{task.fields[note]}"),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._what, total=None, note="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: float, of: float, note: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=of, note=note)
        elif time.monotonic() - self._last >= _PLAIN_LINE_S:
            self._last = time.monotonic()
            print(f"{self._what} {min(done / of, 1):4.0%}: {note}", file=sys.stderr, flush=True)
