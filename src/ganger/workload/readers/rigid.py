"""Rigid batch jobs: a fixed number of processors, all for the same time."""

from ganger.workload.model import Demand, Pool, Stage


class RigidStages(dict[tuple[int, float, float | None, float], tuple[Stage, ...]]):
    """Stages of rigid jobs by processors, run time, time limit and memory; jobs alike share them.

    Times are in seconds; without a limit, schedulers are told the run time. Memory is in GiB for
    each processor, 0 for none asked for.
    """

    def __missing__(self, key: tuple[int, float, float | None, float]) -> tuple[Stage, ...]:
        processors, run_s, limit_s, memory = key
        stage = Stage(
            id="0",
            task_count=processors,
            durations=Pool((run_s,)),
            estimated_task_s=run_s if limit_s is None else limit_s,
            gang=True,
            limit_s=limit_s,
            demand=Demand(memory=memory) if memory > 0 else None,
        )
        self[key] = stages = (stage,)
        return stages
