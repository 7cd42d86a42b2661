"""From what is wished of stages to Slurm's commands, and how everything is given back.

Traps of Slurm's, each of which a test holds: a held job's priority cannot be set ("pending
scheduler release"), so it is released first; ArrayTaskThrottle=0 is no limit, so an array of which
nothing may start is held; what an operator holds with `hold` its user cannot release, so it is
`uhold`; to hold and release a job hands its priority back to Slurm.
"""

from collections.abc import Callable, Iterable

import msgspec

from ganger.serving.slurm.book import Stage, marked, target_of
from ganger.serving.slurm.client import Slurm, SlurmError

Command = tuple[str, ...]
"""Words after `scontrol`."""


def commands_for(stages: Iterable[Stage], priority: int) -> list[tuple[Stage, list[Command]]]:
    """What makes Slurm's view that which is wished; empty where it is already.

    Args:
        stages: all that are driven.
        priority: of the stage that was served first, the others' follow below; 0: set none.
    """
    found = []
    by_rank = sorted(stages, key=lambda stage: (stage.rank, stage.id))
    for place, stage in enumerate(s for s in by_rank if s.allowed and s.waiting):
        if commands := _released(stage, max(priority - place, 1) if priority else 0):
            found.append((stage, commands))
    for stage in by_rank:
        if not stage.allowed and stage.waiting and stage.released:
            found.append((stage, [("uhold", stage.target)]))
    # Those that give up executors first: nobody takes what others were given.
    return sorted(found, key=lambda one: one[0].allowed > 0)


def _released(stage: Stage, priority: int) -> list[Command]:
    job = str(stage.id)
    commands: list[Command] = []
    if stage.is_array:
        throttle = max(stage.allowed, 1)
        if stage.own_throttle:
            throttle = min(throttle, stage.own_throttle)
        if stage.throttle != throttle:
            commands.append(("update", f"JobId={job}", f"ArrayTaskThrottle={throttle}"))
    if stage.held:
        commands.append(("release", stage.target))
    if priority and stage.promised and (stage.held or stage.priority != priority):
        commands.append(("update", f"JobId={job}", f"Priority={priority}"))
    return commands


def refused(error: SlurmError) -> bool:
    """Whether a command failed because we may not give it."""
    return any(one in str(error) for one in ("denied", "Invalid user id"))


class Given(msgspec.Struct):
    """A job that is driven, as it was before."""

    id: int
    throttle: int
    pinned: bool = False
    """Its priority is ours."""


class Drives(msgspec.Struct):
    """What a driver would have to give back."""

    partition: str
    driven: list[Given] = []
    left: list[int] = []
    """Those that belong to somebody else now, whatever their comments say."""
    owed: list[Command] = []
    """What was to be undone for those, and could not be yet."""


def gone(error: SlurmError) -> bool:
    """Whether a command failed because its job is over."""
    words = ("Invalid job id", "already finished", "already completing")
    return any(one in str(error) for one in words)


def give_back(slurm: Slurm, drives: Drives, say: Callable[[str], None]) -> int:
    """Release all that is held here, lift throttles, hand priorities back; how many jobs.

    Raises:
        SlurmError: something could not be given back; it may be tried again.
    """
    given = {one.id: one for one in drives.driven}
    held: dict[int, list[bool]] = {}
    tasks: dict[int, set[int]] = {}
    theirs: dict[int, set[int]] = {}
    throttles: dict[int, int] = {}
    for row in slurm.jobs():
        mine = row.array in given or (
            marked(row.comment)
            and row.held
            and row.reason == "JobHeldUser"
            and drives.partition in row.partitions
        )
        if row.phase == "waiting":
            (theirs if row.theirs else tasks).setdefault(row.array, set()).update(row.tasks)
        if mine and row.phase != "over" and row.array not in drives.left:
            throttles[row.array] = row.throttle
            held.setdefault(row.array, [])
            if row.phase == "waiting" and not row.theirs:
                held[row.array].append(row.held)
    failures: list[SlurmError] = []

    def run(*command: str) -> None:
        try:
            slurm.scontrol(*command)
        except SlurmError as error:
            if not gone(error):
                failures.append(error)

    for command in drives.owed:
        run(*command)
    for job, some in held.items():
        before = given.get(job)
        if before is not None and throttles[job] != before.throttle:
            run("update", f"JobId={job}", f"ArrayTaskThrottle={before.throttle}")
        pinned = before is not None and before.pinned
        target = target_of(job, tasks.get(job, ()), theirs.get(job, ()))
        if some and pinned and not all(some):
            run("uhold", target)
        if any(some) or (some and pinned):
            run("release", target)
    if failures:
        raise failures[0]
    if held:
        say(f"gave back to Slurm: {', '.join(map(str, sorted(held)))}")
    return len(held)
