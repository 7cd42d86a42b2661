"""`ganger drive slurm` on a real Slurm on this machine: daemons, arrays, deaths and restarts."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from serving.slurm.cluster import ACCOUNTING, SlurmCluster, missing

from ganger.serving.estimates import Estimates
from ganger.workload import load_source
from ganger.workload.native import read_workload

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

GANGER = os.path.join(os.path.dirname(sys.executable), "ganger")
OPTED_IN = ("--hold", "--comment=ganger")


@pytest.fixture(scope="module")
def shared():
    with SlurmCluster() as cluster:
        yield cluster
    assert cluster.left() == [] and not cluster.at.exists()


@pytest.fixture
def cluster(shared):
    """The same for all tests, which leave no job behind."""
    yield shared
    shared.run("scancel", "--user=root", check=False)
    shared.wait_idle(10)


class Driver:
    """A running `ganger drive slurm`."""

    def __init__(self, cluster, scheduler="srpt", *flags, interval_s=0.25):
        command = ("drive", "slurm", "toy", "--scheduler", scheduler, "--interval-s")
        self.process = subprocess.Popen(
            [GANGER, *command, str(interval_s), "--deadline-s=5", *flags],
            env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.said = []
        self.threads = [
            threading.Thread(target=self._read, args=(self.process.stderr, self.said), daemon=True),
        ]
        self.shown = []
        out = (self.process.stdout, self.shown)
        self.threads.append(threading.Thread(target=self._read, args=out, daemon=True))
        for thread in self.threads:
            thread.start()

    def __enter__(self):
        self.until("driving partition toy")
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end(signal.SIGTERM)

    def until(self, text, seconds=120):
        end = time.monotonic() + seconds
        while not any(text in line for line in self.said):
            assert self.process.poll() is None and time.monotonic() < end, "".join(self.said)
            time.sleep(0.02)

    def end(self, how):
        """End it; what it counted."""
        self.process.send_signal(how)
        self.process.wait(40)
        for thread in self.threads:
            thread.join(5 if how != signal.SIGKILL else 0.1)
        for line in self.shown:
            with contextlib.suppress(json.JSONDecodeError):
                return json.loads(line)
        return None

    @staticmethod
    def _read(stream, lines):
        with contextlib.suppress(ValueError), stream:
            for line in stream:
                lines.append(line)


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)
    return found


def learn(directory, spec):
    """Estimates as after an earlier run."""
    estimates = Estimates(path=directory / "estimates.json")
    for name, (tasks, seconds) in spec.items():
        estimates.learn(f"root/{name}", tasks, tasks * seconds)
    estimates.save()


def finish(cluster, name):
    return max(end for _, end in cluster.times()[name])


def most_together(times):
    events = sorted([(start, 1) for start, _ in times] + [(end, -1) for _, end in times])
    now = most = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most


def released(cluster, *jobs):
    """Whether nothing of these jobs is held or capped."""
    rows = [row for row in cluster.jobs() if (row["array_job_id"] or row["job_id"]) in jobs]
    waiting = [row for row in rows if row["job_state"] == "PENDING"]
    return all(row["priority"] > 1000 and row["array_max_tasks"] == 0 for row in waiting)


def test_shortest_first_and_what_it_leaves_behind(cluster):
    spec = {"long": (10, 1.0), "middle": (8, 0.6), "short": (6, 0.4), "tiny": (3, 0.3)}
    seen = cluster.at / "seen"
    seen.mkdir()
    learn(seen, spec)
    ids = {
        name: cluster.submit(name, seconds, *OPTED_IN, tasks=tasks)
        for name, (tasks, seconds) in spec.items()
    }
    with Driver(cluster, "srpt", f"--record={seen}") as it:
        cluster.wait_idle(60)
        until(lambda: len((seen / "jobs.jobs.jsonl").read_text().splitlines()) == 5)
        figures = it.end(signal.SIGTERM)
    assert sorted(spec, key=lambda name: finish(cluster, name)) == [
        "tiny", "short", "middle", "long",
    ]  # fmt: skip
    assert {name: len(cluster.times()[name]) for name in spec} == {
        name: tasks for name, (tasks, _) in spec.items()
    }
    assert figures["ganger_jct_seconds_count"] == 4
    assert not any("fail" in kind for kind in figures)
    # What Slurm itself wrote down of the run.
    done = re.findall(r"Name=(\S+) JobState=COMPLETED", (cluster.at / "jobcomp.txt").read_text())
    assert {name: done.count(name) for name in spec} == {
        name: tasks for name, (tasks, _) in spec.items()
    }
    # The record is a workload.
    workload = read_workload(seen / "jobs.jobs.jsonl")
    assert {job.id: job.stages[0].task_count for job in workload.jobs} == {
        f"{ids[name]} {name}": tasks for name, (tasks, _) in spec.items()
    }


def test_no_more_run_than_were_given_executors(cluster):
    with Driver(cluster, "srpt:cap=const,c=2,leftover=idle"):
        for name in ("cap-a", "cap-b", "cap-c"):
            cluster.submit(name, 0.5, *OPTED_IN, tasks=6)
        cluster.wait_idle(40)
    times = cluster.times()
    assert [most_together(times[f"cap-{name}"]) for name in "abc"] == [2, 2, 2]


def test_a_policy_drives_a_dag_and_nothing_else_is_touched(cluster):
    held = cluster.submit("not-ours", 0.1, "--hold", tasks=3)
    plain = cluster.submit("plain", 0.5, "--comment=mine", tasks=3)
    record = cluster.at / "dag"
    with Driver(cluster, "general", f"--record={record}"):
        a = cluster.submit("dag-a", 0.4, *OPTED_IN, tasks=6)
        after = f"--dependency=afterok:{a}"
        b = cluster.submit("dag-b", 0.3, *OPTED_IN, after, tasks=3)
        c = cluster.submit("dag-c", 0.3, *OPTED_IN, after, tasks=3)
        d = cluster.submit("dag-d", 0.1, *OPTED_IN, f"--dependency=afterok:{b}:{c}")
        until(lambda: len((record / "jobs.jobs.jsonl").read_text().splitlines()) == 2, 60)
    (job,) = read_workload(record / "jobs.jobs.jsonl").jobs
    assert [stage.task_count for stage in job.stages] == [6, 3, 3, 1], "all four are one job"
    assert job.stages[3].parents == (f"{b} dag-b", f"{c} dag-c") and d
    times = cluster.times()
    assert [len(times[f"dag-{name}"]) for name in "abcd"] == [6, 3, 3, 1]
    begin = {name: min(start for start, _ in times[name]) for name in times}
    assert begin["dag-b"] >= finish(cluster, "dag-a") <= begin["dag-c"]
    assert begin["dag-d"] >= max(finish(cluster, "dag-b"), finish(cluster, "dag-c"))
    row = next(row for row in cluster.jobs() if row["job_id"] == held)
    assert (row["priority"], row["state_reason"]) == (0, "JobHeldUser")
    assert row["array_max_tasks"] == 0 and len(times["plain"]) == 3
    assert next(r["priority"] for r in cluster.jobs() if r["array_job_id"] == plain) > 4e9
    cluster.run("scancel", str(held))


def test_dead_nodes_and_a_dead_controller_lose_no_job():
    with (
        SlurmCluster(cred_expire=5) as cluster,
        Driver(cluster, "srpt", f"--record={cluster.at}/seen") as it,
    ):
        jobs = {"die-a": 10, "die-b": 6}
        for name, tasks in jobs.items():
            cluster.submit(name, 1.2, *OPTED_IN, tasks=tasks)
        until(lambda: len(running(cluster)) == 8)
        before = set(running(cluster))
        cluster.kill("n0")
        cluster.run("scontrol", "update", "NodeName=n0", "State=DOWN", "Reason=killed")
        until(lambda: len(before & set(running(cluster))) <= 4)
        cluster.stop("slurmctld")
        time.sleep(1)
        cluster.start_controller()
        cluster.start_node("n0")
        cluster.run("scontrol", "update", "NodeName=n0", "State=RESUME", check=False)
        cluster.wait_idle(60)
        record = cluster.at / "seen" / "jobs.jobs.jsonl"
        until(lambda: len(record.read_text().splitlines()) == 3)
        figures = it.end(signal.SIGTERM)
        times = cluster.times()
        done = {name: len(cluster.task_numbers(name)) for name in jobs}
        assert done == jobs, (times, it.said)
        assert "ganger_events_total left" not in figures, it.said
    assert cluster.left() == [] and not cluster.at.exists()


def running(cluster):
    return [row["job_id"] for row in cluster.jobs() if row["job_state"] == "RUNNING"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_whatever_ends_the_driver_everything_is_given_back(cluster, how):
    name = f"end-{how.name}"
    with Driver(cluster, "srpt:cap=const,c=2,leftover=idle") as it:
        another = subprocess.run(
            [GANGER, "drive", "slurm", "toy", "--scheduler=fair"],
            env=cluster.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert another.returncode == 2 and "is driven already" in another.stderr
        first = cluster.submit(f"{name}-a", 1, *OPTED_IN, tasks=6)
        until(lambda: running(cluster))
        second = cluster.submit(f"{name}-b", 0.2, *OPTED_IN, tasks=2)
        # Submitted when it can hardly be seen any more.
        third = cluster.submit(f"{name}-c", 0.2, *OPTED_IN)
        it.end(how)
    until(lambda: released(cluster, first, second, third), 15)
    cluster.wait_idle(20)
    times = cluster.times()
    assert [len(times[f"{name}-{one}"]) for one in "abc"] == [6, 2, 1]


def test_dry_runs_and_shadows_change_nothing(cluster):
    job = cluster.submit("dry", 0.1, *OPTED_IN, tasks=4)
    with Driver(cluster, "srpt", "--dry-run") as it:
        until(lambda: len(it.shown) >= 3)
        assert [line.strip() for line in it.shown[:3]] == [
            f"scontrol update JobId={job} ArrayTaskThrottle=4",
            f"scontrol release {job}",
            f"scontrol update JobId={job} Priority=1000",
        ]
    with Driver(cluster, "srpt", "--shadow"):
        seen = cluster.submit("watched", 0.1, tasks=2)
        until(lambda: len(cluster.times().get("watched", ())) == 2)
    (row,) = [row for row in cluster.jobs() if row["job_id"] == job]
    assert (row["priority"], row["array_max_tasks"]) == (0, 0)
    done = subprocess.run(
        [GANGER, "drive", "slurm", "toy", "--give-back"],
        env=cluster.environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == {"jobs_given_back": 1} and seen
    cluster.wait_idle(20)


@pytest.mark.skipif(missing(ACCOUNTING) is not None, reason=str(missing(ACCOUNTING)))
def test_accounting_is_read_back_and_what_needs_which_rights():
    with SlurmCluster(accounting=True) as cluster:
        with Driver(cluster):
            cluster.submit("acc-a", 0.3, *OPTED_IN, tasks=5)
            cluster.submit("acc-b", 0.3, *OPTED_IN)
            cluster.wait_idle(30)
        log = cluster.at / "sacct.txt"
        columns = "JobID,User,Submit,Start,End,Elapsed,State,NNodes,NCPUS,ReqMem,Timelimit,NodeList"

        def logged():
            log.write_text(
                cluster.run(
                    "sacct", "--parsable2", "--allusers", "--allocations", "--starttime=now-1hour",
                    f"--format={columns}",
                )
            )  # fmt: skip
            return log.read_text().count("COMPLETED") == 6

        until(logged, 20)
        jobs = load_source(str(log)).workload().jobs
        assert len(jobs) == 6 and all(job.stages[0].task_count == 1 for job in jobs)
        check_rights(cluster)
    assert cluster.left() == [] and not cluster.at.exists()


def check_rights(cluster):
    """As docs/drivers/slurm.md says."""
    nobody = 65534

    def may(*words):
        done = subprocess.run(
            ("scontrol", *words), env=cluster.environment, capture_output=True, text=True,
            check=False, user=nobody, group=nobody, extra_groups=(),
        )  # fmt: skip
        refused = ("denied" in done.stderr) or ("Invalid user id" in done.stderr)
        assert done.returncode == 0 or refused, done.stderr
        return done.returncode == 0

    def rights(job):
        return [
            may("update", f"JobId={job}", "ArrayTaskThrottle=2"),
            may("release", str(job)),
            may("update", f"JobId={job}", "Priority=4294901760"),
            may("uhold", str(job)),
        ]

    theirs = cluster.submit("rights-theirs", 1, "--hold", "--begin=now+1hour", tasks=2)
    own = cluster.submit(
        "rights-own", 1, "--hold", "--begin=now+1hour", "--uid=65534", "--gid=65534", tasks=2
    )
    assert rights(own) == [True, True, False, True]
    assert rights(theirs) == [False, False, False, False]
    manage = ("sacctmgr", "--immediate")
    cluster.run(*manage, "add", "account", "ops")
    cluster.run(*manage, "add", "user", "nobody", "account=ops", "adminlevel=Operator")
    until(lambda: may("release", str(theirs)), 10)
    assert rights(theirs) == rights(own) == [True, True, True, True]
    cluster.run("scancel", str(own), str(theirs))
