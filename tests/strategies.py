"""Hypothesis strategies for workloads: small and nasty.

Zero durations, jobs that arrive together, chains, fans, stages listed children first, and all
three kinds of durations.
"""

from hypothesis import strategies as st
from msgspec import structs

from ganger.workload import Job, PerTask, Pool, Recorded, Stage, Wave, Waves, Workload

# Few values, most of them often: equal durations and zeros make events coincide.
_seconds = st.sampled_from((0.0, 0.0, 1.0, 1.0, 2.0, 5.0, 0.1, 0.3, 1.0 / 3.0, 29.97))

_RECORDED = (None, Recorded(), Recorded(start_s=1.5, finish_s=9.0, status="OK"))


def _values(min_size: int = 0) -> st.SearchStrategy[tuple[float, ...]]:
    return st.lists(_seconds, min_size=min_size, max_size=3).map(tuple)


@st.composite
def _waves(draw: st.DrawFn) -> Waves:
    executors = draw(st.lists(st.integers(1, 12), min_size=1, max_size=3, unique=True).map(sorted))
    levels = [
        Wave(
            executors=count,
            fresh_s=draw(_values()),
            first_s=draw(_values()),
            rest_s=draw(_values()),
        )
        for count in executors
    ]
    if not any(level.fresh_s or level.first_s or level.rest_s for level in levels):
        levels[-1] = Wave(executors=executors[-1], first_s=draw(_values(1)))
    return Waves(
        levels=tuple(levels),
        warmup_s=draw(_seconds),
        interpolation=draw(st.sampled_from(["linear", "inverted"])),
    )


def durations(task_count: int) -> st.SearchStrategy[PerTask | Pool | Waves]:
    """Any kind of durations for a stage of so many tasks."""
    per_task = st.lists(_seconds, min_size=task_count, max_size=task_count).map(tuple).map(PerTask)
    return st.one_of(per_task, _values(1).map(Pool), _waves())


@st.composite
def _parents(draw: st.DrawFn) -> list[list[int]]:
    """Parents of each stage: a chain, a fan-out, a fan-in, or anything acyclic."""
    shape = draw(st.sampled_from(["chain", "out", "in", "any"]))
    count = draw(st.integers(1, 9 if shape != "any" else 5))
    match shape:
        case "chain":
            return [[i - 1] if i else [] for i in range(count)]
        case "out":
            return [[0] if i else [] for i in range(count)]
        case "in":
            return [list(range(i)) if i == count - 1 else [] for i in range(count)]
        case _:
            return [[j for j in range(i) if draw(st.booleans())] for i in range(count)]


@st.composite
def stages(draw: st.DrawFn, max_tasks: int = 5) -> tuple[Stage, ...]:
    """The stages of one job, parents first or in any other order."""
    listed = []
    for i, parents in enumerate(draw(_parents())):
        task_count = draw(st.integers(1, max_tasks))
        listed.append(
            Stage(
                id=f"s{i}",
                parents=tuple(f"s{parent}" for parent in parents),
                task_count=task_count,
                durations=draw(durations(task_count)),
                estimated_task_s=draw(st.none() | _seconds),
            )
        )
    return tuple(draw(st.permutations(listed)) if draw(st.booleans()) else listed)


@st.composite
def jobs(draw: st.DrawFn, min_size: int = 1, max_size: int = 5) -> tuple[Job, ...]:
    """Jobs with unique ids; several may arrive together or share one tuple of stages."""
    templates = draw(st.lists(stages(), min_size=1, max_size=2))
    count = draw(st.integers(min_size, max_size))
    return tuple(
        Job(
            id=f"job {i}",
            arrival_s=draw(st.sampled_from([0.0, 0.0, 1.0, 7.5]) | st.floats(0.0, 100.0)),
            stages=draw(st.sampled_from(templates)),
            user=draw(st.sampled_from([None, "ann", ""])),
            recorded=draw(
                st.sampled_from(
                    [None, Recorded(), Recorded(start_s=1.5, finish_s=9.0, status="OK")]
                )
            ),
        )
        for i in range(count)
    )


@st.composite
def mixtures(draw: st.DrawFn, executors: int, max_size: int = 5) -> Workload:
    """Jobs of which some stages are gangs that fit a cluster of so many executors."""
    return Workload(
        tuple(
            structs.replace(job, stages=tuple(draw(_maybe_gang(s, executors)) for s in job.stages))
            for job in draw(jobs(1, max_size))
        )
    )


@st.composite
def _maybe_gang(draw: st.DrawFn, stage: Stage, executors: int) -> Stage:
    if draw(st.booleans()):
        return stage
    return structs.replace(
        stage,
        gang=True,
        task_count=draw(st.integers(1, executors)),
        durations=Pool(draw(_values(1))),
        limit_s=draw(st.none() | _seconds),
    )


def workloads(min_size: int = 1, max_size: int = 5) -> st.SearchStrategy[Workload]:
    """Workloads of such jobs."""
    return jobs(min_size, max_size).map(Workload)
