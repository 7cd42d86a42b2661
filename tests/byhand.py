"""Cases small enough to work out by hand: jobs in one line, and schedulers told what to say."""

from invariants import check_timeline, drive

from ganger.simulator.observation import Decision
from ganger.simulator.simulate import Cluster
from ganger.workload import Job, PerTask, Pool, Stage, Workload


def stage(name, *durations_s, after=()):
    return Stage(
        id=name, parents=tuple(after), task_count=len(durations_s), durations=PerTask(durations_s)
    )


def gang(name, tasks, *values_s, after=(), limit_s=None):
    return Stage(
        id=name,
        parents=tuple(after),
        task_count=tasks,
        durations=Pool(values_s),
        gang=True,
        limit_s=limit_s,
    )


def job(name, arrival_s, *stages):
    return Job(id=name, arrival_s=float(arrival_s), stages=stages)


class FirstComeFirst:
    """The first stage that may be chosen gets all on offer. Remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def decide(self, observation):
        self.asked.append(observation)
        name, first = next((j.id, s) for j in observation.jobs for s in j.schedulable)
        return Decision(job=name, stage=first.id, limit=1_000_000)

    @property
    def times_s(self):
        return [observation.time_s for observation in self.asked]


class Script(FirstComeFirst):
    """Decisions one after another; then the first stage that may be chosen."""

    def __init__(self, *decisions):
        super().__init__()
        self._left = list(decisions)

    def decide(self, observation):
        if not self._left:
            return super().decide(observation)
        self.asked.append(observation)
        decision = self._left.pop(0)
        return decision and Decision(job=decision[0], stage=decision[1], limit=decision[2])


def run(executors, jobs, scheduler, *, move_delay_s=2.0, **rules):
    """Times and timeline of a small case; its invariants are checked on the way."""
    cluster = Cluster(executors=executors, move_delay_s=move_delay_s, **rules)
    workload = Workload(jobs)
    result = drive(cluster, workload, scheduler)
    if not result.unfinished:
        check_timeline(cluster, workload, result)
    return result


def lines(result):
    """(start, finish, job, stage, task) of every task in order of finish."""
    return [
        (line["start_s"], line["finish_s"], line["job"], line["stage"], line["task"])
        for line in result.timeline
    ]
