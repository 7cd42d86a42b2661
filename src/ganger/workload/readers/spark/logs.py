"""Which files make up one log, and the applications that a log holds.

A log is a file, or a folder `eventlog_v2_<application>` of files `events_<n>_<application>`, read
in the order of n. Spark may compact old ones: `events_<n>_<application>.compact` then stands
for all up to n, without the events of what had finished.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ganger.errors import WorkloadError
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.opening import Truncated, lines
from ganger.workload.readers.spark.application import Application
from ganger.workload.readers.spark.events import (
    ApplicationStart,
    Event,
    LogStart,
    UnreadableError,
    decode,
)

_ROLLED = re.compile(r"events_(\d{1,18})_(.*)", re.DOTALL)


class NoEventsError(WorkloadError):
    """A file holds no events at all: it is something else, or noise."""


@dataclass(slots=True)
class Log:
    """The files of one log, in order."""

    path: Path
    files: list[Path]


def group(paths: Iterable[Path], findings: Findings) -> list[Log]:
    """Put the files of rolling logs together, each log where its first file stands."""
    logs: list[Log] = []
    rolling: dict[Path, dict[Path, int]] = {}
    for path in paths:
        if path.name.startswith("appstatus_"):
            continue  # an empty file: its name says whether the application was running
        rolled = _ROLLED.fullmatch(path.name)
        if rolled is None:
            logs.append(Log(path, [path]))
            continue
        if path.parent not in rolling:
            rolling[path.parent] = {}
            logs.append(Log(path.parent, []))
        rolling[path.parent][path] = int(rolled[1])
    for log in logs:
        if not log.files:
            log.files = _in_order(rolling[log.path], findings)
    return logs


def _in_order(numbers: dict[Path, int], findings: Findings) -> list[Path]:
    """The files to read, by number, from the last compacted one on."""
    files = sorted(numbers, key=lambda file: (numbers[file], file.suffix != ".compact", file.name))
    compacted = [i for i, file in enumerate(files) if file.suffix == ".compact"]
    if compacted:
        last = files[compacted[-1]]
        findings.notes.append(
            f"{last}: compacted: the jobs that had finished, and their durations, are gone"
        )
        files = [last, *(file for file in files if numbers[file] > numbers[last])]
    expected = numbers[files[0]] if compacted else 1
    for file in files:
        if numbers[file] > expected:
            findings.add(
                "dropped",
                "file of a rolling log is missing",
                f"{file.parent}/events_{expected}",
                numbers[file] - expected,
            )
        expected = numbers[file] + 1
    return files


def applications(log: Log, findings: Findings, per_execution: bool) -> list[Application]:
    """Read a log; nearly always, it holds one application.

    Raises:
        NoEventsError: naming a file, if it holds something else than events.
        WorkloadError: naming a file, if it cannot be read.
    """
    read: list[Application] = []
    current = Application(findings, per_execution)
    for event, where in _events(log, findings):
        if _another(current, event):
            read.append(current)
            current = Application(findings, per_execution)
        current.handle(event, where)
        current.events += 1
    if current.events:
        read.append(current)
    for application in read:
        application.close()
    return read


def _another(current: Application, event: Event) -> bool:
    """Whether an application begins here although one has begun: somebody joined two logs."""
    if isinstance(event, LogStart):
        return current.events > 0
    return isinstance(event, ApplicationStart) and current.started


def _events(log: Log, findings: Findings) -> Iterator[tuple[Event, str]]:
    for path in log.files:
        findings.files += 1
        events = number = 0
        unreadable: tuple[str, str] | None = None
        try:
            for number, line in lines(path):
                findings.rows += 1
                if unreadable is not None:
                    findings.add("dropped", *unreadable)
                    unreadable = None
                if not line:
                    continue
                try:
                    event = decode(line)
                except UnreadableError as error:
                    unreadable = (str(error), f"{path}:{number}")
                    continue
                events += 1
                if event is not None:
                    yield event, f"{path}:{number}"
        except Truncated:
            if not events:
                raise
            findings.add(
                "dropped",
                "compressed data ends in the middle: what follows is lost",
                f"{path}:{number + 1}",
            )
        if number == 0:
            findings.add("dropped", "file is empty", str(path))
        elif events == 0 and len(log.files) > 1:
            findings.add("dropped", "file that holds no Spark events", str(path))
        elif events == 0:
            raise NoEventsError(
                f"{path}: holds no Spark events; expected lines like "
                '{"Event":"SparkListenerLogStart", ...}'
            )
        if unreadable is not None:
            reason, where = unreadable
            last = path == log.files[-1]
            findings.add("dropped", "last line is cut off" if last else reason, where)


def names(log: Log, applications: Sequence[Application], taken: set[str]) -> Iterator[str]:
    """A name for each application of a log that none has had before: its id, and its attempt."""
    for application in applications:
        name = application.id or log.path.name
        if application.attempt is not None:
            name = f"{name}_{application.attempt}"
        if name in taken:
            name = f"{log.path.name}:{name}"
        unique, n = name, 2
        while unique in taken:
            unique, n = f"{name}:{n}", n + 1
        taken.add(unique)
        yield unique
