"""What Spark's status tracker says of marked jobs, written into the book.

The tracker knows how many tasks of a stage run and have ended, not how long they took: that is the
number that ran, added up over the looks.
"""

from collections.abc import Sequence
from typing import Any

from ganger.serving.spark.book import Book, SparkJob, SparkStage

_ENDED = ("SUCCEEDED", "FAILED", "UNKNOWN")


class Look:
    """Looks at one application."""

    def __init__(self, context: Any, book: Book, *, executors: int | None = None) -> None:
        """Prepare to look.

        Args:
            context: a SparkContext.
            book: is written to.
            executors: task slots of the application; None: as Spark says.
        """
        self._context, self._book, self._executors = context, book, executors
        self._tracker = context.statusTracker()
        # Tags leave job groups to the user; only the tracker of the Scala API knows them.
        self._tags = context._jsc.sc().statusTracker()
        self._cpus = int(context.getConf().get("spark.task.cpus", "1"))
        self._ended: dict[int, bool] = {}
        self._at_s: float | None = None

    def __call__(self, now_s: float, jobs: Sequence[SparkJob]) -> None:
        """Look at these jobs, by arrival, and at what else runs."""
        passed_s = 0.0 if self._at_s is None else now_s - self._at_s
        self._at_s = now_s
        book = self._book
        slots = self._context.defaultParallelism // self._cpus
        book.executors = self._executors or max(slots, 1)
        # A job in another one is its own: whoever came last is asked first.
        claimed: set[int] = set()
        for job in reversed(jobs):
            self._job(job, now_s, passed_s, claimed)
        marked = {stage for job in jobs for stage in job.stages}
        others = set(self._tracker.getActiveStageIds()) - marked
        found = [self._tracker.getStageInfo(number) for number in others]
        book.others = sum(one.numActiveTasks for one in found if one is not None)

    def settled(self, job: SparkJob) -> bool:
        """Whether nothing more will be heard of it."""
        return all(self._ended.get(one, False) for one in self._numbers(job))

    def _numbers(self, job: SparkJob) -> list[int]:
        return sorted(self._tags.getJobIdsForTag(job.tag))

    def _job(self, job: SparkJob, now_s: float, passed_s: float, claimed: set[int]) -> None:
        listed: dict[int, bool] = {}  # by stage: whether a job that goes on wants it
        for number in self._numbers(job):
            if number in claimed:
                continue
            claimed.add(number)
            info = self._tracker.getJobInfo(number)
            if info is None:
                continue
            self._ended[number] = info.status in _ENDED
            for stage in info.stageIds:
                listed[stage] = listed.get(stage, False) or not self._ended[number]
        for number, wanted in sorted(listed.items()):
            stage = job.stages.get(number)
            if stage is None or not (stage.done and stage.begun):
                self._stage(job, number, wanted, passed_s)
        # What was skipped is no work: a later stage began without it, or its job has ended.
        begun = {number: stage for number, stage in job.stages.items() if stage.begun}
        last = max(begun, default=-1)
        later = {
            number: stage
            for number, stage in sorted(job.stages.items())
            if not stage.begun and number > last and listed.get(number, False)
        }
        job.stages = begun | later
        # Not by the tasks that run, of which the tracker tells late.
        if any(listed.values()):
            job.active_s = now_s

    def _stage(self, job: SparkJob, number: int, wanted: bool, passed_s: float) -> None:
        info = self._tracker.getStageInfo(number)
        if info is None:
            return
        stage = job.stages.get(number)
        if stage is None:
            if not wanted and info.numCompletedTasks == 0:
                return
            stage = job.stages[number] = SparkStage(number, info.numTasks)
        ran = (info.numActiveTasks + stage.active) / 2
        stage.active = info.numActiveTasks
        stage.finished = min(info.numCompletedTasks, stage.tasks)
        if not stage.begun and (stage.active or stage.finished):
            stage.begun = True
            stage.after = next(
                (
                    one
                    for one in reversed(job.stages.values())
                    if one is not stage and one.begun and one.done
                ),
                None,
            )
            del job.stages[number]  # to come last of those that have begun
            job.stages[number] = stage
            if not stage.active:  # it began and ended between two looks
                ran = min(stage.finished, self._book.executors) / 2
        stage.busy_s += ran * passed_s
