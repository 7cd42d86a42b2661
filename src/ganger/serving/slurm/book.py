"""What is remembered of the jobs that opted in: Slurm forgets ended tasks within minutes.

An array, or a single job, is a stage; its tasks are those of the array. Stages that depend on one
another, or name the same job in their comments, are one job. Executors are slots of some CPUs. A
single job that needs more of them than one is a gang of as many tasks as executors.

What is wished of a stage is a number of executors, of which those that run its tasks are a part:

    ceiling   those decided about since jobs arrived last: they go on from task to task
    goal      until it is reached, those that ran when it was decided, and those it was given
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ganger.serving.slurm.wire import Row

MARK = "ganger"
_MISSES = 2
"""So often in a row a task must be missing before it is believed to have ended."""


def marked(comment: str) -> bool:
    """Whether a job's comment opts in: `ganger`, or `ganger:job=NAME`."""
    return comment == MARK or comment.startswith(f"{MARK}:")


def target_of(array: int, tasks: Collection[int], but: Collection[int]) -> str:
    """An array in a command: as a whole, or where some of its tasks are left out, 12_[0-3,7]."""
    if not but:
        return str(array)
    parts: list[list[int]] = []
    for task in sorted(set(tasks) - set(but)):
        if parts and parts[-1][1] == task - 1:
            parts[-1][1] = task
        else:
            parts.append([task, task])
    ranges = (str(first) if first == last else f"{first}-{last}" for first, last in parts)
    return f"{array}_[{','.join(ranges)}]"


@dataclass(eq=False)
class Stage:
    """An array, or a single job."""

    id: int
    name: str
    user: str
    group: str
    """As its comment names the job; empty: its dependencies tell."""
    is_array: bool
    executors_each: int
    """That a single job needs; of an array 1."""
    limit_s: float | None
    submit_s: float
    own_throttle: int
    """As it was submitted; 0: none."""
    after: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    later: set[int] = field(default_factory=set)
    """Of those that wait: such as may not start before some time, as after their node died."""
    theirs: set[int] = field(default_factory=set)
    """Likewise: such as operators hold, or Slurm itself."""
    running: dict[int, float] = field(default_factory=dict)
    """Task to when it started."""
    finished: set[int] = field(default_factory=set)
    took_s: dict[int, float] = field(default_factory=dict)
    """Of tasks that have ended well."""
    end_s: float = 0.0
    ceiling: int = 0
    goal: int = 0
    rank: int = 0
    """In which order stages were served last."""
    blocked_until_s: float = 0.0
    """It was given executors before and did not start."""

    # As Slurm has it.
    held: bool = True
    """Whether some of its waiting tasks are."""
    released: bool = False
    """Whether others are not."""
    throttle: int = 0
    priority: int = 0
    seen_held: bool | None = None
    """As the rest of the array was seen, if nobody here has changed it since."""
    pinned: bool = False
    """Its priority was set."""

    _missed: dict[int, int] = field(default_factory=dict)
    _waits_since_s: float | None = None
    _waits_with: tuple[int, int] = (0, 0)

    @property
    def title(self) -> str:
        """For people, and as the id in observations."""
        return f"{self.id} {self.name}"

    @property
    def key(self) -> str:
        """Under which its durations are remembered: other people's names mean other things."""
        return f"{self.user}/{self.name}"

    @property
    def gang(self) -> bool:
        """Whether its one task needs several executors."""
        return self.executors_each > 1

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return not self.waiting and not self.running

    @property
    def executors(self) -> int:
        """Running its tasks."""
        return len(self.running) * self.executors_each

    @property
    def allowed(self) -> int:
        """Tasks that may run together."""
        return max(self.goal, self.ceiling)

    @property
    def promised(self) -> int:
        """Tasks that may start but have not."""
        return max(min(self.allowed - len(self.running), self._could_start), 0)

    @property
    def room(self) -> int:
        """Tasks that could be allowed as well."""
        room = self._could_start - self.promised
        if self.own_throttle:
            room = min(room, self.own_throttle - max(self.allowed, len(self.running)))
        return max(room, 0)

    @property
    def _could_start(self) -> int:
        return len(self.waiting) - len(self.later | self.theirs)

    @property
    def target(self) -> str:
        """What commands name: its tasks, but those that others hold."""
        return target_of(self.id, self.waiting, self.theirs)

    def give(self, tasks: int) -> None:
        """Allow more tasks."""
        tasks = min(tasks, self.room)
        self.goal = len(self.running) + self.promised + tasks
        self.ceiling += tasks

    def back(self, tasks: int) -> None:
        """Promise no more than so many tasks: there are no executors for others."""
        most = len(self.running) + tasks
        self.goal, self.ceiling = min(self.goal, most), min(self.ceiling, most)

    def withdraw(self) -> None:
        """Allow no more than what runs, and not even that once it has ended."""
        self.goal = self.ceiling = 0

    def settle(self, now_s: float, patience_s: float) -> bool:
        """After it was seen: forget what was reached; whether the rest does not start."""
        if len(self.running) >= self.goal or not self.waiting:
            self.goal = 0
        if not self.waiting:
            self.ceiling = 0
        if not self.promised:
            self._waits_since_s = None
            return False
        launched = (len(self.running) + len(self.finished), self.promised)
        if self._waits_since_s is None or launched != self._waits_with:
            self._waits_since_s, self._waits_with = now_s, launched
        if now_s - self._waits_since_s < patience_s:
            return False
        self.withdraw()
        self._waits_since_s = None
        self.blocked_until_s = now_s + patience_s
        return True

    def see(self, rows: Iterable[Row], now_s: float) -> None:
        """Take over what Slurm says of its tasks."""
        known = self.waiting | self.running.keys()
        present: set[int] = set()
        self.held = self.released = False
        self.later.clear()
        self.theirs.clear()
        for row in rows:
            present |= row.tasks
            self.throttle = row.throttle
            if row.phase == "waiting":
                self._now_waiting(row, now_s)
            elif row.phase == "running":
                for task in row.tasks:
                    self.running[task] = row.start_s or now_s
                self.waiting -= row.tasks
                self.later -= row.tasks
                self.theirs -= row.tasks
                self.finished -= row.tasks
            else:
                self._now_over(row)
        for task in known - present:
            self._missed[task] = self._missed.get(task, 0) + 1
            if self._missed[task] >= _MISSES:
                self._ended(task, now_s)
        for task in present & self._missed.keys():
            del self._missed[task]

    def _now_waiting(self, row: Row, now_s: float) -> None:
        self.waiting |= row.tasks
        self.finished -= row.tasks
        for task in row.tasks & self.running.keys():  # requeued
            del self.running[task]
        if row.theirs:
            self.theirs |= row.tasks
        self.held |= row.held and not row.theirs
        self.released |= not row.held
        if row.eligible_s > now_s:
            self.later |= row.tasks
        self.after |= row.after
        if not row.held:
            self.priority = row.priority

    def _now_over(self, row: Row) -> None:
        for task in row.tasks - self.finished:
            if row.completed and 0 < row.start_s <= row.end_s:
                self.took_s[task] = row.end_s - row.start_s
            self._ended(task, row.end_s)

    def _ended(self, task: int, end_s: float) -> None:
        self.waiting.discard(task)
        self.later.discard(task)
        self.theirs.discard(task)
        self.running.pop(task, None)
        self._missed.pop(task, None)
        self.finished.add(task)
        self.end_s = max(self.end_s, end_s)


class Job:
    """Stages that belong together, parents first."""

    def __init__(self, stages: list[Stage]) -> None:
        self.stages = stages

    @property
    def title(self) -> str:
        """The smallest id of its stages, and what it is called."""
        first = min(self.stages, key=lambda stage: stage.id)
        return f"{first.id} {first.group or first.name}"

    @property
    def arrival_s(self) -> float:
        """When its first stage was submitted."""
        return min(stage.submit_s for stage in self.stages)

    @property
    def done(self) -> bool:
        """Whether all its stages have ended."""
        return all(stage.done for stage in self.stages)


class Book:
    """The jobs that opted in and have not ended."""

    def __init__(
        self,
        partition: str,
        *,
        executor_cpus: int = 1,
        adopt: bool = False,
        everything: bool = False,
        patience_s: float = 60.0,
    ) -> None:
        """Begin with none.

        Args:
            partition: jobs of others are nobody's business.
            executor_cpus: CPUs of an executor.
            adopt: take up marked jobs that are not held, too.
            everything: take up all jobs, to watch only.
            patience_s: what was given and has not started for so long is withdrawn.
        """
        self._partition = partition
        self._cpus = executor_cpus
        self._adopt, self._everything = adopt, everything
        self._patience_s = patience_s
        self.stages: dict[int, Stage] = {}
        self.left: dict[int, str] = {}
        """Marked jobs that are not driven any more, or never were, and why."""
        self.newly_left: list[Stage] = []
        """To be emptied by whoever gives back what they were given."""
        self.unfit: list[int] = []
        """Marked, held, and of a kind that is not driven: likewise."""
        self.ended: list[Job] = []
        """Likewise, by whoever learns from them."""
        self.stuck: list[Stage] = []
        """What was given to them did not start; likewise."""
        self.arrived = False
        """Whether jobs have arrived since the time before."""

    def lost_sight(self) -> None:
        """Slurm did not answer: what has changed when it does need not be anybody's will."""
        for stage in self.stages.values():
            stage.seen_held = None

    def see(self, rows: list[Row], now_s: float) -> None:
        """Take over what Slurm says."""
        by_array: dict[int, list[Row]] = {}
        for row in rows:
            by_array.setdefault(row.array, []).append(row)
        self.arrived = False
        for array, some in by_array.items():
            if array not in self.stages and array not in self.left:
                self._consider(some)
        for array, stage in list(self.stages.items()):
            some = by_array.get(array, [])
            if (why := self._interfered(stage, some)) is not None:
                self._leave(stage, why)
                continue
            stage.see(some, now_s)
        if self.arrived:
            for stage in self.stages.values():
                stage.ceiling = 0
        for stage in self.stages.values():
            if stage.settle(now_s, self._patience_s):
                self.stuck.append(stage)
        for array in self.left.keys() - by_array.keys():
            del self.left[array]
        for job in self.jobs():
            if job.done:
                self.ended.append(job)
                for stage in job.stages:
                    del self.stages[stage.id]

    def jobs(self) -> list[Job]:
        """By arrival, their stages in topological order."""
        root: dict[int, int] = {array: array for array in self.stages}

        def top(array: int) -> int:
            while root[array] != array:
                root[array] = array = root[root[array]]
            return array

        groups: dict[tuple[str, str], int] = {}
        for array, stage in self.stages.items():
            for parent in stage.after & self.stages.keys():
                if self.stages[parent].user == stage.user:
                    root[top(array)] = top(parent)
            if stage.group:
                root[top(array)] = top(groups.setdefault((stage.user, stage.group), array))
        members: dict[int, list[Stage]] = {}
        for array in sorted(self.stages):  # a parent's id is smaller
            members.setdefault(top(array), []).append(self.stages[array])
        jobs = [Job(stages) for stages in members.values()]
        return sorted(jobs, key=lambda job: (job.arrival_s, job.stages[0].id))

    def parents(self, stage: Stage) -> list[Stage]:
        """Of those that are remembered."""
        return [
            self.stages[one]
            for one in sorted(stage.after & self.stages.keys())
            if one < stage.id and self.stages[one].user == stage.user
        ]

    def runnable(self, stage: Stage, open_jobs: set[int]) -> bool:
        """Whether all that it depends on is over; open_jobs: those of Slurm's that are not."""
        return not stage.after & open_jobs

    def _consider(self, rows: list[Row]) -> None:
        first = min(rows, key=lambda row: row.id)
        if self._partition not in first.partitions:
            return
        alive = [row for row in rows if row.phase != "over"]
        if not alive or not (self._everything or marked(first.comment)):
            return
        held = any(row.held and row.reason == "JobHeldUser" for row in alive)
        if not (held or self._adopt or self._everything):
            self.left[first.array] = "it was not submitted with --hold"
            return
        each = math.ceil(first.cpus / self._cpus)
        if (first.is_array and each > 1) or first.several:
            self.left[first.array] = (
                "it is a heterogeneous job"
                if first.several
                else f"its tasks need {first.cpus} CPUs each, an executor has {self._cpus}"
            )
            if held and not self._everything:
                self.unfit.append(first.array)
            return
        group = first.comment.removeprefix(f"{MARK}:job=") if marked(first.comment) else ""
        self.stages[first.array] = Stage(
            id=first.array,
            name=first.name,
            user=first.user,
            group="" if group == first.comment else group,
            is_array=first.is_array,
            executors_each=each,
            limit_s=first.limit_s,
            submit_s=first.submit_s,
            own_throttle=first.throttle,
        )
        self.arrived = True

    def _interfered(self, stage: Stage, rows: list[Row]) -> str | None:
        """Whether somebody else has taken a stage into their hands, and how."""
        if self._everything:
            return None
        for row in rows:
            if row.phase == "over":
                continue
            if not marked(row.comment):
                return "its comment was changed"
            if self._partition not in row.partitions:
                return "it was moved to another partition"
            if row.reason == "DependencyNeverSatisfied":
                return "what it depends on has failed"
        # What is left of the array has its id; tasks that were requeued have ids of their own.
        rest = next((r for r in rows if r.id == stage.id and r.phase == "waiting"), None)
        if rest is None:
            stage.seen_held = None
            return None
        before, stage.seen_held = stage.seen_held, None if rest.theirs else rest.held
        # Held and marked is opted in, whoever held it: also a slurmctld that lost its last seconds.
        return "somebody released it" if before is True and not rest.held else None

    def _leave(self, stage: Stage, why: str) -> None:
        self.left[stage.id] = why
        self.newly_left.append(stage)
        del self.stages[stage.id]
