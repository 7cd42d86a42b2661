"""A Slurm without daemons: a job table behind the commands that the driver uses.

It starts tasks by priority, as far as holds, throttles, dependencies and CPUs allow, forgets ended
ones after a while, and can be told to fail.
"""

from dataclasses import dataclass, field

from ganger.serving.slurm.client import SlurmError
from ganger.serving.slurm.wire import Node, Row, task_numbers


@dataclass
class FakeJob:
    id: int
    name: str
    tasks: int
    seconds: float
    is_array: bool
    cpus: int
    comment: str
    user: str
    after: tuple[int, ...]
    submit_s: float
    limit_s: float | None
    throttle: int
    priority: int
    reason: str = ""
    eligible_s: float = 0.0
    record_ids: dict[int, int] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    running: dict[int, float] = field(default_factory=dict)
    ended: dict[int, tuple[float, float, str]] = field(default_factory=dict)
    theirs: set[int] = field(default_factory=set)
    """Tasks that an operator holds."""


class FakeSlurm:
    """Follows a clock that tests move."""

    def __init__(self, nodes=2, cpus=4, *, partition="toy", min_job_age=300.0):
        self.now_s = 1_000_000.0
        self.partition = partition
        self.down = set()
        self.commands = []
        self.calls = 0
        self.fail_when = lambda call, words: False
        """Of every call: whether it fails, before anything is done."""
        self.lost_when = lambda call, words: False
        """Whether what was done is not answered."""
        self.denied_when = lambda words: False
        self.most_together = {}
        self._cpus = {f"n{i}": cpus for i in range(nodes)}
        self._on = {}
        self._jobs = {}
        self._next_id = 1
        self._next_priority = 4_294_901_759
        self._min_job_age = min_job_age

    # What a driver asks.

    def jobs(self):
        self._called("squeue")
        rows = []
        for job in self._jobs.values():
            rest = {task for task in job.waiting if task not in job.record_ids}
            if theirs := rest & job.theirs:
                rows.append(self._row(job, 900_000 + job.id, theirs, "waiting", theirs=True))
            if rest := rest - job.theirs:
                rows.append(self._row(job, job.id, rest, "waiting"))
            for task, number in job.record_ids.items():
                if task in job.waiting:
                    rows.append(self._row(job, number, {task}, "waiting"))
                elif task in job.running:
                    start = job.running[task]
                    rows.append(self._row(job, number, {task}, "running", start_s=start))
                elif self.now_s - job.ended[task][1] <= self._min_job_age:
                    start, end, state = job.ended[task]
                    rows.append(
                        self._row(
                            job, number, {task}, "over", start_s=start, end_s=end,
                            completed=state == "COMPLETED",
                        )
                    )  # fmt: skip
        self._answered("squeue")
        return rows

    def nodes(self):
        self._called("sinfo")
        return [
            Node(
                name=name,
                partitions=(self.partition,),
                usable=name not in self.down,
                cpus=cpus,
                idle_cpus=self._idle(name),
            )
            for name, cpus in self._cpus.items()
        ]

    def scontrol(self, *words):
        self._called(*words)
        self.commands.append(words)
        if self.denied_when(words):
            raise SlurmError(f"{words[1]}: Access/permission denied")
        name, _, some = words[1].removeprefix("JobId=").partition("_")
        number, some = int(name), task_numbers(some)
        job = self._jobs.get(number)
        if job is None:
            raise SlurmError(f"Invalid job id specified for job {number}")
        if not job.waiting and not job.running:
            raise SlurmError(f"{number}: Job has already finished")
        if words[0] == "release":
            if job.priority == 0:
                job.priority, job.reason = self._next_priority, ""
                self._next_priority -= 1
            job.theirs -= some or job.theirs
        elif words[0] == "uhold":
            job.priority, job.reason = 0, "JobHeldUser"
        elif words[0] == "update":
            name, value = words[2].split("=")
            if name == "Priority":
                if job.priority == 0:
                    raise SlurmError("Job is in held state, pending scheduler release")
                job.priority = int(value)
            else:
                assert name == "ArrayTaskThrottle" and job.is_array
                job.throttle = int(value)
        else:
            raise AssertionError(words)
        self._answered(*words)

    # What tests do.

    def submit(
        self, name, tasks=None, seconds=1.0, *, held=True, comment="ganger", cpus=1, after=(),
        user="ann", limit_s=None, throttle=0,
    ):  # fmt: skip
        job = FakeJob(
            self._next_id, name, tasks or 1, seconds, tasks is not None, cpus, comment, user,
            tuple(after), self.now_s, limit_s, throttle, 0 if held else self._next_priority,
            "JobHeldUser" if held else "",
        )  # fmt: skip
        job.waiting = set(range(job.tasks))
        self._jobs[job.id] = job
        self._next_id += 1
        self._next_priority -= 1
        return job.id

    def job(self, number):
        return self._jobs[number]

    def forget_all(self):
        """As after MinJobAge."""
        self._min_job_age = -1.0

    def pass_time(self, seconds, step=0.1):
        """Tasks end, and others start."""
        end = self.now_s + seconds
        self._schedule()
        while self.now_s < end - 1e-9:
            self.now_s = round(self.now_s + step, 6)
            for job in self._jobs.values():
                for task, start in list(job.running.items()):
                    if self.now_s - start >= job.seconds:
                        self.end_task(job.id, task)
            self._schedule()

    def end_task(self, number, task, state="COMPLETED"):
        job = self._jobs[number]
        job.ended[task] = (job.running.pop(task), self.now_s, state)
        del self._on[number, task]

    def kill_node(self, name):
        """Its tasks are requeued."""
        self.down.add(name)
        for (number, task), where in list(self._on.items()):
            if where == name:
                job = self._jobs[number]
                del job.running[task], self._on[number, task]
                job.waiting.add(task)

    def finished(self, number):
        """When its last task ended; None: it has not."""
        job = self._jobs[number]
        if job.waiting or job.running:
            return None
        return max(end for _, end, _ in job.ended.values())

    def _idle(self, name):
        used = sum(self._jobs[n].cpus for (n, _), where in self._on.items() if where == name)
        return self._cpus[name] - used

    def _schedule(self):
        for job in sorted(self._jobs.values(), key=lambda job: (-job.priority, job.id)):
            if job.priority == 0 or not self._independent(job) or job.eligible_s > self.now_s:
                continue
            for task in sorted(job.waiting - job.theirs):
                if job.throttle and len(job.running) >= job.throttle:
                    break
                where = next(
                    (n for n in self._cpus if n not in self.down and self._idle(n) >= job.cpus),
                    None,
                )
                if where is None:
                    break
                job.waiting.remove(task)
                job.running[task] = self.now_s
                self._on[job.id, task] = where
                if task not in job.record_ids:
                    last = not [t for t in job.waiting if t not in job.record_ids]
                    job.record_ids[task] = job.id if last else self._next_id
                    self._next_id += not last
            most = max(self.most_together.get(job.id, 0), len(job.running))
            self.most_together[job.id] = most

    def _independent(self, job):
        return all(self.finished(parent) is not None for parent in job.after)

    def _row(
        self, job, number, tasks, phase, *, start_s=0.0, end_s=0.0, completed=False, theirs=False
    ):
        open_parents = [one for one in job.after if self.finished(one) is None]
        reason = job.reason or ("Dependency" if open_parents else "Priority")
        return Row(
            id=number, array=job.id, is_array=job.is_array, tasks=frozenset(tasks),
            throttle=job.throttle, phase=phase, completed=completed,
            reason="JobHeldAdmin" if theirs else reason if phase == "waiting" else "None",
            priority=0 if theirs else job.priority,
            after=frozenset(open_parents), comment=job.comment, user=job.user, name=job.name,
            partitions=(self.partition,), cpus=job.cpus, limit_s=job.limit_s,
            submit_s=job.submit_s, start_s=start_s, end_s=end_s, eligible_s=job.eligible_s,
            several=False,
        )  # fmt: skip

    def _called(self, *words):
        self.calls += 1
        if self.fail_when(self.calls, words):
            raise SlurmError(f"{words[0]}: told to fail")

    def _answered(self, *words):
        if self.lost_when(self.calls, words):
            raise SlurmError(f"{words[0]}: no answer within 1 s")
