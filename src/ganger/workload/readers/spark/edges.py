"""Which stages of a unit depend on which, among those that left durations in the log."""

from collections.abc import Callable
from itertools import islice

from ganger.workload.readers.findings import Findings
from ganger.workload.readers.spark.unit import Stage, Unit

_MOST = 64
"""Stages that a stage follows at most by a guess: enough for what Spark does, and for a file that
is made to fill the memory."""


def link(unit: Unit, has_ended: Callable[[int], bool], findings: Findings) -> None:
    """Find the edges of a unit, and forget its stages that left nothing.

    Args:
        unit: its `stages` become those with durations, and its `parents` their edges.
        has_ended: whether a Spark job has.
        findings: takes what was dropped and guessed.
    """
    ran = {}
    for stage in unit.stages.values():
        if stage.kept:
            ran[stage.id] = stage
        elif stage.ran:
            unit.lost += 1
            findings.add("dropped", "stage of which no duration is in the log", stage.where)
        elif not all(map(has_ended, stage.jobs)):
            unit.lost += 1
            findings.add("dropped", "stage that had not started when its log ends", stage.where)
        elif "JobFailed" in unit.results:
            findings.add("dropped", "stage that did not run, of a job that failed", stage.where)
        else:
            findings.add("noted", "stage that Spark skipped: its edges are bridged", stage.where)
    unit.parents = _parents(unit, set(ran), findings)
    unit.stages = ran
    _follow_ended_jobs(unit, findings)


def _parents(unit: Unit, ran: set[int], findings: Findings) -> dict[int, set[int]]:
    """The parents of each stage that ran, among those that ran.

    A stage that did not run is bridged: its output was made by a stage of the same RDD if one ran
    before it in the unit, else its parents take its place.
    """
    makers: dict[int, list[int]] = {}
    stands_for: dict[int, set[int]] = {}
    parents: dict[int, set[int]] = {}
    before: dict[int, int] = {}
    for stage in sorted(unit.stages.values(), key=lambda stage: stage.id):
        above: set[int] = set()
        for parent in _listed_parents(stage, before, findings):
            # Spark numbers a stage after its parents, so this keeps out cycles.
            if parent in stands_for:
                above |= stands_for[parent]
            else:
                findings.add("dropped", "parent that is no earlier stage of its job", stage.where)
        for job in stage.jobs:
            before[job] = stage.id
        if stage.id in ran:
            parents[stage.id] = above
            stands_for[stage.id] = {stage.id}
            if stage.rdd is not None:
                makers.setdefault(stage.rdd, []).append(stage.id)
        elif stage.rdd in makers:
            stands_for[stage.id] = {makers[stage.rdd][-1]}
        else:
            stands_for[stage.id] = above
    return parents


def _listed_parents(stage: Stage, before: dict[int, int], findings: Findings) -> tuple[int, ...]:
    """What the log says, or, before Spark 1.4, the stage with the number before in its job."""
    if stage.parents is not None:
        return stage.parents
    last = {before[job] for job in stage.jobs if job in before}
    if last:
        findings.add("guessed", "parents that the log does not tell: the stage before", stage.where)
    return tuple(last)


def _follow_ended_jobs(unit: Unit, findings: Findings) -> None:
    """Within a SQL execution, let a job that depends on no other one follow those that had ended.

    Spark submits what it can at once, so a job that came after others had ended waited for them: a
    broadcast, a listing of files, a sample.
    """
    if len(unit.jobs) < 2:
        return
    parents = unit.parents
    own: dict[int, list[Stage]] = {}
    for stage in unit.stages.values():
        own.setdefault(stage.jobs[0], []).append(stage)
    ended = sorted((end, job) for job, (_, end) in unit.jobs.items() if end is not None)
    came = sorted((begin, job) for job, (begin, _) in unit.jobs.items() if begin is not None)
    # Of the jobs that have ended, the stages that none of them follows, the latest to end last.
    last: dict[int, None] = {}
    i = 0
    for submitted_ms, job in came:
        while i < len(ended) and ended[i][0] <= submitted_ms:
            done = [stage.id for stage in own.get(ended[i][1], ())]
            last |= dict.fromkeys(done)
            for parent in {parent for stage in done for parent in parents[stage]}:
                last.pop(parent, None)
            i += 1
        inside = {stage.id for stage in own.get(job, ())}
        if not inside or any(parents[stage] - inside for stage in inside):
            continue
        least = min(inside)  # a parent has a lower number, which keeps out cycles
        earlier = {stage for stage in islice(reversed(last), _MOST) if stage < least}
        if not earlier:
            continue
        for root in inside:
            if not parents[root]:
                parents[root] = set(earlier)
        findings.add(
            "guessed",
            "job of a SQL execution follows those that had ended when it came",
            own[job][0].where,
        )
