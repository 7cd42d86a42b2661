"""Standard Task Graphs (Tobita & Kasahara 2002, Journal of Scheduling 5(5)), times as seconds.

The first number counts the tasks; then each task has its number, its time, how many parents it
has, and the parents, over one line or more. Lines with # are a footer, whose figures are compared
with what was read. Three variants are in use:

- the set: tasks from 0, with a dummy task of no time at both ends that is not counted;
- its prototype: tasks from 1, a dummy at the end, and the number of processors beside the first;
- with communication: each parent is followed by what sending to another processor takes, which has
  no counterpart here: it is dropped, and counted.

Format: https://www.kasahara.cs.waseda.ac.jp/schedule/format_e.html and proto_e.html.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ganger.errors import WorkloadError
from ganger.workload.model import MAX_TIME_S, Job, PerTask, Stage, check_stages, topological_order
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.graph import job_ids
from ganger.workload.readers.opening import lines

NAME = "stg"

_MAX_DIGITS = 9  # of a count or a task's number
_FOOTER = re.compile(r"#\s*(Tasks|Edges|CP Length|Parallelism)\s*:\s*([0-9.]+)")
_FOOTER_TOLERANCE = 1e-5  # the parallelism is rounded to six places


class _Task(NamedTuple):
    number: int
    time_s: float
    parents: tuple[int, ...]
    line: int


@dataclass
class _File:
    """The numbers of a file, and the line that each stands in."""

    path: Path
    words: list[bytes] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    footer: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Key -> its figure and line."""

    def place(self, i: int) -> str:
        return f"{self.path}:{self.at[i]}"

    def starts_line(self, i: int) -> bool:
        return self.at[i] != self.at[i - 1]

    def whole(self, i: int, what: str) -> int:
        """Word i as a whole number."""
        if i >= len(self.words):
            raise WorkloadError(f"{self.place(-1)}: the file ends here; expected {what}")
        word = self.words[i]
        if not word.isdigit() or len(word) > _MAX_DIGITS:
            raise WorkloadError(f"{self.place(i)}: {_shown(word)} is not {what}")
        return int(word)

    def time(self, i: int) -> float:
        if i >= len(self.words):
            self.whole(i, "a task's time")
        try:
            time_s = float(self.words[i])
        except ValueError:
            time_s = math.nan
        if not 0.0 <= time_s <= MAX_TIME_S:
            raise WorkloadError(
                f"{self.place(i)}: {_shown(self.words[i])} is not a task's time; "
                f"expected a number from 0 to {MAX_TIME_S:g}"
            )
        return time_s


def recognise(head: bytes, path: Path) -> bool:
    """One or two whole numbers in the first line, and a task 0 or 1 in the second."""
    rows = [line.split() for line in head.split(b"\n")[:50]]
    rows = [row for row in rows if row and not row[0].startswith(b"#")][:2]
    if len(rows) < 2 or len(rows[0]) > 2 or len(rows[1]) < 3:
        return False
    if not all(word.isdigit() for word in [*rows[0], rows[1][0], rows[1][2]]):
        return False
    try:
        float(rows[1][1])
    except ValueError:
        return False
    return rows[1][0] in (b"0", b"1")


def read(paths: Sequence[Path], findings: Findings) -> Iterator[Job]:
    """One job per file: a stage per task, dummies included, as tasks of no time.

    Raises:
        WorkloadError: with the path and line of what is wrong. A graph with a part missing is no
            graph, so nothing in it is dropped.
    """
    findings.format = "Standard Task Graph"
    for path, name in zip(paths, job_ids(paths), strict=True):
        findings.files += 1
        yield Job(id=name, arrival_s=0.0, stages=_stages(path, findings))


def _stages(path: Path, findings: Findings) -> tuple[Stage, ...]:
    file = _read(path)
    count = file.whole(0, "the number of tasks")
    first = 1
    if len(file.words) > 1 and not file.starts_line(1):
        processors = file.whole(1, "the number of processors")
        findings.executors = max(processors, findings.executors or 0)
        first = 2
    try:
        tasks = _tasks(file, first, costs=False)
    except WorkloadError:
        with_costs = _tasks_with_costs(file, first)
        if with_costs is None:
            raise
        tasks = with_costs
        edges = sum(len(task.parents) for task in tasks)
        findings.add(
            "dropped", "communication time: executors send nothing", file.place(first), edges
        )
    findings.rows += len(tasks)
    dummies = _dummies(file, count, tasks, findings)
    _check_references(path, tasks)
    stages = tuple(
        Stage(
            id=str(task.number),
            parents=tuple(map(str, task.parents)),
            task_count=1,
            durations=PerTask((task.time_s,)),
        )
        for task in tasks
    )
    check_stages(stages, f"{path}")
    _check_footer(file, tasks, dummies, _critical_path_s(tasks, stages), findings)
    return stages


def _read(path: Path) -> _File:
    file = _File(path)
    for number, line in lines(path):
        body, mark, _ = line.partition(b"#")
        if mark and (found := _FOOTER.match(line.decode("ascii", "replace"))):
            file.footer[found[1]] = (_figure(found[2]), number)
        words = body.split()
        file.words += words
        file.at += [number] * len(words)
    if not file.words:
        raise WorkloadError(f"{path}: holds no numbers; expected the number of tasks first")
    return file


def _figure(digits: str) -> float:
    try:
        return float(digits)
    except ValueError:
        return math.nan


def _tasks(file: _File, first: int, *, costs: bool) -> list[_Task]:
    """All tasks from word `first` on; with `costs`, a number follows each parent."""
    per_parent = 2 if costs else 1
    tasks: list[_Task] = []
    i = first
    while i < len(file.words):
        number = file.whole(i, "a task's number")
        # Where a task neither begins a line nor is the next one, a number is missing or too many.
        if tasks and not file.starts_line(i) and number != tasks[-1].number + 1:
            raise WorkloadError(
                f"{file.place(i)}: task {tasks[-1].number} says that it has "
                f"{len(tasks[-1].parents)} parents; the line holds more numbers"
            )
        time_s = file.time(i + 1)
        count = file.whole(i + 2, f"the number of parents of task {number}")
        if i + 3 + count * per_parent > len(file.words):
            file.whole(len(file.words), f"{count} parents of task {number}")
        parents = tuple(
            file.whole(i + 3 + k * per_parent, f"a parent of task {number}") for k in range(count)
        )
        for k in range(count if costs else 0):
            file.time(i + 4 + 2 * k)
        tasks.append(_Task(number, time_s, parents, file.at[i]))
        i += 3 + count * per_parent
    return tasks


def _tasks_with_costs(file: _File, first: int) -> list[_Task] | None:
    """Likewise, or None where the numbers do not add up to that either."""
    try:
        return _tasks(file, first, costs=True)
    except WorkloadError:
        return None


def _dummies(file: _File, count: int, tasks: list[_Task], findings: Findings) -> set[int]:
    """The numbers of the tasks that the file's first line does not count."""
    lowest = min(tasks, key=lambda task: task.number, default=None)
    dummies: set[int] = set()
    if lowest is not None and lowest.number == 0 and not lowest.time_s and not lowest.parents:
        dummies = {0, count + 1}
    elif lowest is not None and lowest.number == 1 and len(tasks) > count:
        dummies = {count + 1}
    if len(tasks) != count + len(dummies):
        and_dummies = f" and {len(dummies)} dummies" if dummies else ""
        raise WorkloadError(
            f"{file.place(-1)}: the file ends after {len(tasks)} tasks; "
            f"expected {count}{and_dummies}, as its first line says"
        )
    if not dummies:
        findings.add("noted", "graph without dummy tasks", f"{file.path}")
    return dummies


def _check_references(path: Path, tasks: list[_Task]) -> None:
    """Refuse a number that two tasks have, and a parent that no task is."""
    lines_of: dict[int, int] = {}
    for task in tasks:
        first = lines_of.setdefault(task.number, task.line)
        if first != task.line:
            raise WorkloadError(
                f"{path}:{task.line}: task {task.number} is in line {first}, too; "
                "expected each number once"
            )
    for task in tasks:
        unknown = [parent for parent in task.parents if parent not in lines_of]
        if unknown:
            raise WorkloadError(
                f"{path}:{task.line}: task {task.number} has a parent {unknown[0]}, "
                "which is no task of this file"
            )


def _check_footer(
    file: _File, tasks: list[_Task], dummies: set[int], path_s: float, findings: Findings
) -> None:
    """Note where the footer says something else than the tasks do."""
    work_s = math.fsum(task.time_s for task in tasks)
    edges = [
        (parent, task.number)
        for task in tasks
        for parent in task.parents
        if parent not in dummies and task.number not in dummies
    ]
    read = {
        "Tasks": len(tasks) - len(dummies),
        "Edges": len(edges),
        "CP Length": path_s,
        "Parallelism": work_s / path_s if path_s > 0 else math.nan,
    }
    for key, (said, line) in file.footer.items():
        if not math.isclose(said, read[key], rel_tol=_FOOTER_TOLERANCE):
            reason = f"footer that states another {key} than its tasks have"
            findings.add("noted", reason, f"{file.path}:{line}")


def _critical_path_s(tasks: list[_Task], stages: tuple[Stage, ...]) -> float:
    """The longest chain of task times."""
    end_s: dict[int, float] = {}
    for i in topological_order(stages):
        task = tasks[i]
        end_s[task.number] = task.time_s + max((end_s[p] for p in task.parents), default=0.0)
    return max(end_s.values(), default=0.0)


def _shown(word: bytes) -> str:
    return repr(word[:20].decode("utf-8", "replace"))
