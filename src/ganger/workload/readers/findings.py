"""What a reader saw in somebody's file, and what it did about it.

A reader never alters or leaves out anything in silence: each time it does, it says so here, with a
reason and a place. The command line shows the counts; `--strict` makes the first one an error.
"""

from dataclasses import dataclass, field
from typing import Literal

from ganger.errors import WorkloadError

Action = Literal["dropped", "repaired", "guessed", "noted"]
"""dropped: a row or event is not in the result. repaired: a value in it was wrong and is now one
that the same row supports. guessed: a value was missing and is now an assumption. noted: nothing
was altered, but whoever reads the result should know."""

PLACES = 3
"""How many places a finding keeps."""


@dataclass
class Finding:
    """One kind of thing that was done, how often, and where first."""

    action: Action
    reason: str
    count: int = 0
    places: list[str] = field(default_factory=list)


@dataclass
class Findings:
    """What one reading of one or more files found."""

    strict: bool = False
    format: str = ""
    version: str = ""
    files: int = 0
    rows: int = 0
    """Rows or events read, whatever became of them."""
    found: dict[tuple[Action, str], Finding] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What is worth knowing of the whole: a log without an end, a header that disagrees."""
    executors: int | None = None
    """Size of the cluster that the log is of, in processors, task slots or what its jobs ask for;
    None if it does not say."""
    epoch_s: float | None = None
    """Unix time at which the jobs' clock shows 0; None if the log does not say."""
    timezone: str | None = None
    """Where the cluster stood, as "Europe/Stockholm", or its offset as "+01:00"."""

    def add(self, action: Action, reason: str, where: str, count: int = 1) -> None:
        """Count something done at `where` ("file:line").

        `reason` names the kind and not the case, as "run time is -1: the job never ran".

        Raises:
            WorkloadError: if `strict`, and something was altered.
        """
        if self.strict and action != "noted":
            raise WorkloadError(f"{where}: {reason}; {action} without --strict")
        key = (action, reason)
        finding = self.found.get(key)
        if finding is None:
            finding = self.found[key] = Finding(action, reason)
        finding.count += count
        if len(finding.places) < PLACES:
            finding.places.append(where)

    def count(self, action: Action) -> int:
        return sum(finding.count for finding in self.found.values() if finding.action == action)
