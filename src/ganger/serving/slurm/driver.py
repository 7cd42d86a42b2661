"""Drives one partition of a Slurm cluster: observe, decide, act, again and again.

Nothing is remembered that could contradict Slurm: what is wished is compared with what Slurm shows
every time, and commands make up the difference. A command that failed, or was not needed, is
therefore nothing special, and neither is a slurmctld that restarts.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ganger.config import Config
from ganger.errors import ConfigError, SchedulerError
from ganger.serving.estimates import Estimates
from ganger.serving.records import SeenJob, SeenStage
from ganger.serving.rounds import executors_given
from ganger.serving.slurm.acting import (
    Command,
    Drives,
    Given,
    commands_for,
    give_back,
    gone,
    refused,
)
from ganger.serving.slurm.book import Book, Job, Stage
from ganger.serving.slurm.capacity import Capacity, capacity_of
from ganger.serving.slurm.client import Slurm, SlurmError
from ganger.serving.slurm.wire import Row
from ganger.simulator.observation import (
    Decision,
    JobObservation,
    Observation,
    StageObservation,
)

_REPEAT_S = 60.0
_IN_VAIN = 3


class SlurmConfig(Config, frozen=True, kw_only=True):
    """How a partition is driven."""

    interval_s: float = 1.0
    """Seconds from one look at Slurm to the next; shorter is more prompt, and more work for
    slurmctld."""
    timeout_s: float = 15.0
    """A command of Slurm's that takes longer is given up, and tried again."""
    executor_cpus: int = 1
    """CPUs of an executor; tasks of driven arrays may need that many at most."""
    priority: int = 1000
    """Of the stage served first, others' follow below; 0: leave priorities alone, which no rights
    are needed for to drive one's own jobs."""
    patience_s: float = 60.0
    """What was given executors and has not started for so long has to wait as long again."""
    stall_s: float = 10.0
    """If the scheduler declines for so long although nothing runs, the first stage is served."""
    adopt: bool = False
    """Take up marked jobs that are not held, too: such as an earlier driver gave back."""
    shadow: bool = False
    """Watch all jobs of the partition, marked or not, and decide, but change nothing."""

    def __post_init__(self) -> None:
        for name in ("interval_s", "timeout_s", "patience_s", "stall_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} is {getattr(self, name)}; expected seconds, above 0")
        if self.executor_cpus < 1:
            raise ConfigError(f"executor_cpus is {self.executor_cpus}; expected 1 or more")
        if not 0 <= self.priority < 2**32 - 2:
            raise ConfigError(f"priority is {self.priority}; expected 0, or up to 4294967293")


class Guardian(Protocol):
    """What gives everything back if the driver cannot: a `watchdog.Watchdog`."""

    def tell(self, drives: Drives) -> None:
        """What there is to give back."""


class Driver:
    """Observes and acts; whoever decides stands between."""

    def __init__(
        self,
        slurm: Slurm,
        partition: str,
        config: SlurmConfig,
        estimates: Estimates,
        *,
        dry_run: bool = False,
        guardian: Guardian | None = None,
        count: Callable[[str], None] = lambda kind: None,
        say: Callable[[str], None] = lambda line: None,
        show: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare to drive.

        Args:
            slurm: the cluster.
            partition: of it.
            dry_run: show the commands instead of running them.
            guardian: is told what there is to give back before anything is taken.
            count: what is not routine, by kind.
            say: gets lines for people.
            show: gets the commands of a dry run.
            clock: Unix time, as Slurm's.
        """
        self._slurm, self._partition, self._config = slurm, partition, config
        self._estimates = estimates
        self._passive = dry_run or config.shadow
        self._dry_run = dry_run
        self._guardian, self._count, self._say, self._show = guardian, count, say, show
        self._clock = clock
        self._version = 0
        self._given_version = 0
        self._observation: Observation | None = None
        self._owed: list[Command] = []
        self._by_title: dict[tuple[str, str], Stage] = {}
        self._shown: tuple[str, ...] = ()
        self._said: dict[str, float] = {}
        self.ended: list[Job] = []
        """Jobs that have ended, to be emptied by the caller."""
        self.book = Book(
            partition,
            executor_cpus=config.executor_cpus,
            adopt=config.adopt,
            everything=config.shadow,
            patience_s=config.patience_s,
        )

    @property
    def drives(self) -> Drives:
        """What there is to give back."""
        return Drives(
            self._partition,
            [Given(s.id, s.own_throttle, s.pinned) for s in self.book.stages.values()],
            sorted(self.book.left),
            self._owed,
        )

    def observe(self) -> Observation:
        """Look at Slurm: what there is to decide now.

        Raises:
            SlurmError: it does not answer; nothing has changed here.
        """
        try:
            rows = self._slurm.jobs()
            # Jobs first: what starts in between is then promised twice, not offered twice.
            nodes = self._slurm.nodes()
        except SlurmError:
            self.book.lost_sight()
            raise
        now_s = self._clock()
        self.book.see(rows, now_s)
        self._let_go()
        self.ended += self.book.ended
        self.book.ended = []
        for stage in self.book.stuck:
            self._count("stuck")
            self._say(f"{stage.title}: was given executors and does not start; others go first")
        self.book.stuck = []
        capacity = capacity_of(self._partition, nodes, rows, self.book, self._config.executor_cpus)
        self._version += 1
        self._observation = self._observed(rows, capacity, now_s)
        return self._observation

    def act(self, decisions: Sequence[Decision], version: int) -> bool:
        """Do what was decided, and whatever else makes Slurm's view ours; whether it was in time.

        It may be repeated: the decisions of a version are taken once, and commands say what shall
        be, not what shall change. Decisions about another version than was observed last are
        dropped and counted.
        """
        in_time = version == self._version
        if not in_time:
            self._count("stale")
        elif decisions and version != self._given_version:
            self._given_version = version
            self._give(decisions)
        if self._config.shadow:
            return in_time
        todo = commands_for(self.book.stages.values(), self._config.priority)
        if self._dry_run:
            self._show_only([command for _, commands in todo for command in commands])
            for stage in self.book.stages.values():
                stage.withdraw()
        else:
            self._carry_out(todo)
        return in_time

    def serve_first(self, observation: Observation) -> list[Decision]:
        """Everything on offer to the first stage that could use it."""
        for job in observation.jobs:
            for stage in job.schedulable:
                return [Decision(job.id, stage.id, job.supply + observation.on_offer)]
        return []

    def give_back(self) -> int:
        """Release all that is held and lift what was capped; how many jobs.

        Raises:
            SlurmError: not all could be.
        """
        return give_back(self._slurm, self.drives, self._say)

    def seen(self, job: Job) -> SeenJob:
        """A job that has ended, for the records."""
        return SeenJob(
            id=job.title,
            arrival_s=job.arrival_s,
            finish_s=max(stage.end_s for stage in job.stages),
            stages=tuple(
                SeenStage(
                    id=stage.title,
                    parents=tuple(
                        one.title
                        for one in job.stages
                        if one.id in stage.after and one.id < stage.id
                    ),
                    durations_s=_durations(stage),
                    name=stage.key,
                )
                for stage in job.stages
            ),
            user=job.stages[0].user,
        )

    def _observed(self, rows: list[Row], capacity: Capacity, now_s: float) -> Observation:
        open_jobs = {row.array for row in rows if row.phase != "over"}
        on_offer = capacity.free
        for stage in sorted(self.book.stages.values(), key=lambda stage: stage.rank):
            # Somebody else may have taken what was promised, or a node may have gone.
            stage.back(on_offer // stage.executors_each)
            on_offer -= stage.promised * stage.executors_each
        self._by_title = {}
        jobs = []
        for job in self.book.jobs():
            stages = tuple(
                self._observed_stage(stage, open_jobs, on_offer, now_s) for stage in job.stages
            )
            for stage in job.stages:
                self._by_title[job.title, stage.title] = stage
            executors = sum(stage.executors for stage in stages)
            jobs.append(
                JobObservation(
                    id=job.title,
                    arrival_s=job.arrival_s,
                    executors=executors,
                    supply=executors + sum(stage.committed for stage in stages),
                    stages=stages,
                )
            )
        return Observation(
            version=self._version,
            time_s=now_s,
            executors=capacity.total,
            on_offer=on_offer,
            source_job=None,
            idle=capacity.free,
            jobs=tuple(jobs),
            work_conserving=True,
        )

    def _observed_stage(
        self, stage: Stage, open_jobs: set[int], on_offer: int, now_s: float
    ) -> StageObservation:
        each = stage.executors_each
        launched = len(stage.running) + len(stage.finished)
        return StageObservation(
            id=stage.title,
            parents=tuple(parent.title for parent in self.book.parents(stage)),
            tasks=(launched + len(stage.waiting)) * each,
            launched=launched * each,
            finished=len(stage.finished) * each,
            committed=stage.promised * each,
            moving=0,
            executors=stage.executors,
            estimated_task_s=self._estimated_s(stage),
            schedulable=stage.room > 0
            and self.book.runnable(stage, open_jobs)
            and now_s >= stage.blocked_until_s
            and (each == 1 or each <= on_offer)
            and (stage.released or not self._config.shadow),
            gang=stage.gang,
            limit_s=stage.limit_s,
            started_s=min(stage.running.values()) if stage.gang and stage.running else None,
        )

    def _estimated_s(self, stage: Stage) -> float:
        known = self._estimates.estimate(
            stage.key, len(stage.took_s), float(sum(stage.took_s.values()))
        )
        if known.source == "prior" and stage.limit_s is not None:
            return stage.limit_s
        return known.task_s

    def _give(self, decisions: Sequence[Decision]) -> None:
        assert self._observation is not None
        try:
            given = executors_given(self._observation, decisions)
        except SchedulerError as error:
            self._count("illegal")
            self._say(f"a round is dropped: {error}")
            return
        for place, (decision, executors) in enumerate(zip(decisions, given, strict=True)):
            stage = self._by_title[decision.job, decision.stage]
            stage.give(1 if stage.gang else executors)
            stage.rank = place

    def _carry_out(self, todo: list[tuple[Stage, list[Command]]]) -> None:
        for stage, commands in todo:
            stage.pinned |= any(word.startswith("Priority=") for c in commands for word in c)
        if self._guardian is not None:
            self._guardian.tell(self.drives)
        in_vain = 0
        for stage, commands in todo:
            try:
                for command in commands:
                    if command[0] in ("release", "uhold"):
                        stage.seen_held = None  # whatever becomes of it
                    self._slurm.scontrol(*command)
                    self._count("commands")
                in_vain = 0
            except SlurmError as error:
                if gone(error):
                    continue
                self._failed(error)
                if refused(error):
                    if command[-1].startswith("Priority="):
                        continue  # it has been released, which is more
                    stage.withdraw()
                    stage.blocked_until_s = self._clock() + self._config.patience_s
                    continue
                in_vain += 1
                if in_vain >= _IN_VAIN:
                    return  # nobody is there: each would take its time

    def _let_go(self) -> None:
        """Undo what was done to stages that are not driven any more; and release the unfit."""
        for stage in self.book.newly_left:
            why = self.book.left.get(stage.id, "")
            self._count("left")
            self._say(f"{stage.title}: {why}; it is left to Slurm")
            if stage.is_array and stage.throttle != stage.own_throttle:
                throttle = f"ArrayTaskThrottle={stage.own_throttle}"
                self._owed.append(("update", f"JobId={stage.id}", throttle))
            if stage.held:
                self._owed.append(("release", stage.target))
        for job in self.book.unfit:
            self._count("unfit")
            self._say(f"{job}: {self.book.left.get(job, '')}; it is released, and left to Slurm")
            self._owed.append(("release", str(job)))
        self.book.newly_left, self.book.unfit = [], []
        if self._passive:
            self._owed = []
        still: list[Command] = []
        for command in self._owed:
            try:
                self._slurm.scontrol(*command)
            except SlurmError as error:
                if not gone(error):
                    self._failed(error)
                    still.append(command)
        self._owed = still

    def _failed(self, error: SlurmError) -> None:
        self._count("failed")
        now = time.monotonic()
        if now - self._said.get(str(error), -_REPEAT_S) >= _REPEAT_S:
            self._said = {text: at for text, at in self._said.items() if now - at < _REPEAT_S}
            self._said[str(error)] = now
            hint = "; docs/drivers/slurm.md lists which rights are needed" if refused(error) else ""
            self._say(f"{error}{hint}")

    def _show_only(self, commands: list[Command]) -> None:
        lines = tuple("scontrol " + " ".join(command) for command in commands)
        if lines != self._shown:
            for line in lines:
                self._show(line)
        self._shown = lines


def _durations(stage: Stage) -> tuple[float, ...]:
    """Of all its tasks; where one is not known, what the others took on average."""
    known = stage.took_s
    mean_s = sum(known.values()) / len(known) if known else 0.0
    return tuple(known.get(task, mean_s) for task in sorted(stage.finished))
