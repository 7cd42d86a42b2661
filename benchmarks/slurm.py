"""What driving a Slurm costs and saves: the same jobs by Slurm alone, and driven.

    python benchmarks/slurm.py [--schedulers srpt general] [--interval-s 0.3] [--json]

As root, after scripts/setup-slurm: a Slurm on loopback with 12 CPUs, of which only the sleeping
takes long. Eight arrays arrive one after another, the longest first.
"""

import argparse
import json
import os
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "serving" / "slurm"))
from cluster import SlurmCluster

from ganger.serving.estimates import Estimates
from ganger.serving.guard import GuardConfig, load_guard
from ganger.serving.metrics import Metrics
from ganger.serving.process import Setting
from ganger.serving.records import Records
from ganger.serving.slurm.client import Client
from ganger.serving.slurm.driver import Driver, SlurmConfig
from ganger.serving.slurm.loop import Loop

JOBS = [
    ("J0", 60, 1.0), ("J1", 40, 0.8), ("J2", 24, 1.2), ("J3", 16, 0.6), ("J4", 6, 0.7),
    ("J5", 12, 0.5), ("J6", 6, 0.3), ("J7", 30, 1.0),
]  # fmt: skip
GAP_S = 0.3


class Timed(Client):
    """Remembers how long commands take, and when jobs were released."""

    def __init__(self, partition):
        super().__init__(partition)
        self.took_s = {"jobs": [], "nodes": [], "scontrol": []}
        self.released = {}

    def jobs(self):
        return self._timed("jobs", super().jobs)

    def nodes(self):
        return self._timed("nodes", super().nodes)

    def scontrol(self, *words):
        self._timed("scontrol", lambda: super(Timed, self).scontrol(*words))
        if words[0] == "release":
            self.released.setdefault(int(words[1]), time.time())

    def _timed(self, kind, call):
        began = time.perf_counter()
        try:
            return call()
        finally:
            self.took_s[kind].append(time.perf_counter() - began)


def run(cluster, scheduler, interval_s):
    """The figures of a run; None: Slurm alone."""
    (cluster.at / "times").unlink(missing_ok=True)
    flags = () if scheduler is None else ("--hold", "--comment=ganger")
    client, stop, guard = Timed("toy"), threading.Event(), None
    metrics = Metrics()
    thread = None
    if scheduler is not None:
        # As after an earlier run of the same jobs.
        estimates = Estimates()
        for name, tasks, seconds in JOBS:
            estimates.learn(f"root/{name}", tasks, tasks * seconds)
        config = SlurmConfig(interval_s=interval_s)
        guard = load_guard(Setting(scheduler), GuardConfig())
        driver = Driver(
            client, "toy", config, estimates, count=lambda kind: metrics.events.labels(kind).inc()
        )
        loop = Loop(driver, config, guard, estimates, metrics, Records(None))
        thread = threading.Thread(target=loop.run, args=(stop,))
        thread.start()
    submitted, ids = {}, {}
    for name, tasks, seconds in JOBS:
        submitted[name] = time.time()
        ids[name] = cluster.submit(name, seconds, *flags, tasks=tasks)
        time.sleep(GAP_S)
    cluster.wait_idle(300)
    stop.set()
    if thread is not None:
        thread.join()
        guard.close()
    times = cluster.times()
    assert {name: len(times[name]) for name in submitted} == {n: k for n, k, _ in JOBS}
    end = {name: max(finish for _, finish in times[name]) for name in times}
    jct_s = {name: round(end[name] - submitted[name], 2) for name in submitted}
    start_s = [
        min(start for start, _ in times[name]) - client.released[ids[name]]
        for name in ids
        if ids[name] in client.released
    ]
    counted = metrics.figures()
    return {
        "scheduler": scheduler or "Slurm alone",
        "mean_jct_s": round(statistics.mean(jct_s.values()), 2),
        "makespan_s": round(max(end.values()) - min(submitted.values()), 2),
        "jct_s": jct_s,
        "order": sorted(end, key=end.__getitem__),
        "rounds": counted.get("ganger_rounds_total acted", 0),
        "commands": len(client.took_s["scontrol"]),
        "events": {
            name.split()[1]: count
            for name, count in counted.items()
            if name.startswith("ganger_events_total")
        },
        "decide_ms": _ms(counted) if scheduler else None,
        "command_ms": {
            kind: [round(1e3 * statistics.median(took), 1), round(1e3 * max(took), 1)]
            for kind, took in client.took_s.items()
            if took
        },
        "release_to_first_start_s": [
            round(statistics.median(start_s), 2), round(max(start_s), 2),
        ] if start_s else None,
    }  # fmt: skip


def _ms(counted):
    count = counted["ganger_decision_seconds_count"]
    return round(1e3 * counted["ganger_decision_seconds_sum"] / count, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedulers", nargs="*", default=["srpt", "general"])
    parser.add_argument("--interval-s", type=float, default=0.3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = []
    with SlurmCluster(nodes=3, cpus=4) as cluster:
        os.environ.update({"SLURM_CONF": cluster.environment["SLURM_CONF"]})
        for scheduler in (None, *given.schedulers):
            rows.append(run(cluster, scheduler, given.interval_s))
            if not given.json:
                print(json.dumps(rows[-1]), flush=True)
    if given.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
