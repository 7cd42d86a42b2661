"""Schedulers on a real Dask cluster of 8 workers, and what the simulator predicts for them.

    python benchmarks/dask_comparison.py [--rounds 3] [--schedulers fifo,fair,srpt,RUN] [--json]

Eight DAG jobs of sleeping tasks, 0.15 s apart, each from a client of its own; every scheduler runs
them in turn, round by round. `stock` is Dask without Ganger, `stock-sjf` with static priorities,
shortest job first. Durations are learned in a run before, as they would be in production, and the
prediction rests on the same: how long each task held its executor there, data that it fetched and
messages included. Nothing is fitted to a scheduler.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from dask_cluster import DaskCluster, run_jobs, sleep_jobs, stop

from ganger.planning import load_scheduler
from ganger.serving.records import Round
from ganger.simulator.simulate import Cluster, simulate
from ganger.workload import Job, Workload, read_workload

WORKERS, GAP_S = 8, 0.15
STOCK = ("stock", "stock-sjf")


def measure(scheduler, record, run):
    """Mean completion time, and the plugin's counts."""
    jobs = sleep_jobs()
    with DaskCluster(WORKERS, gated=scheduler not in STOCK) as cluster:
        if scheduler in STOCK:
            shortest = (lambda job: -int(10 * job.work_s)) if scheduler == "stock-sjf" else None
            return run_jobs(cluster, jobs, gap_s=GAP_S, run=run, mark=False, priority=shortest), {}
        agent = cluster.start_agent(scheduler, "--record", str(record), "--deadline-s", "0.5")
        jct_s = run_jobs(cluster, jobs, gap_s=GAP_S, run=run)
        agent.send_signal(2)
        out, _ = agent.communicate(timeout=30)
        stop(agent)
        return jct_s, json.loads(out)


def predicted(scheduler, recorded):
    """The simulator's completion times."""
    jobs = []
    by_kind = {job.id.split(".")[0]: job for job in recorded.jobs}
    for number, sleeping in enumerate(sleep_jobs()):
        stages = by_kind[sleeping.name].stages
        jobs.append(Job(id=sleeping.name, arrival_s=GAP_S * number, stages=stages))
    rules = {"reconsider": True, "work_conserving": True}
    cluster = Cluster(executors=WORKERS, move_delay_s=0.0, **rules)
    return simulate(cluster, Workload(tuple(jobs)), load_scheduler(scheduler)).jct_s


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--schedulers", default="stock,stock-sjf,fifo,fair,srpt,general")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    schedulers = given.schedulers.split(",")
    measured = {scheduler: [] for scheduler in schedulers}
    latencies, counts = [], {}
    with tempfile.TemporaryDirectory() as directory:
        record = Path(directory)
        measure("fifo", record, 0)
        recorded = read_workload(record / "jobs.jobs.jsonl")
        for number in range(given.rounds):
            for scheduler in schedulers:
                jct_s, counted = measure(scheduler, record, 1 + number)
                measured[scheduler].append(statistics.mean(jct_s))
                for name, count in counted.items():
                    if name.startswith(("ganger_fallbacks", "ganger_events")):
                        counts[name] = counts.get(name, 0) + count
                print(f"{scheduler}: {measured[scheduler][-1]:.2f} s", file=sys.stderr)
        lines = (record / "decisions.jsonl").read_bytes().splitlines()
        latencies = [msgspec.json.decode(line, type=Round).answer.latency_s for line in lines]
    rows = []
    for scheduler in schedulers:
        real_s = statistics.mean(measured[scheduler])
        row = {"scheduler": scheduler, "mean_jct_s": real_s, "rounds_s": measured[scheduler]}
        if scheduler not in STOCK:
            row["predicted_s"] = float(predicted(scheduler, recorded).mean())
            row["error"] = row["predicted_s"] / real_s - 1
        rows.append(row)
    latencies.sort()
    figures = {
        "decision_p50_ms": 1e3 * statistics.median(latencies),
        "decision_p99_ms": 1e3 * latencies[int(0.99 * len(latencies))],
        "counts": counts,
    }
    if given.json:
        print(json.dumps({"schedulers": rows} | figures))
        return
    print("scheduler   mean JCT  least to most   simulated  error")
    for row in rows:
        least, most = min(row["rounds_s"]), max(row["rounds_s"])
        print(
            f"{row['scheduler']:10s} {row['mean_jct_s']:7.2f} s  {least:.2f} to {most:.2f} s",
            f"  {row['predicted_s']:6.2f} s   {row['error']:+.0%}" if "error" in row else "",
        )
    print({name: round(f, 1) if isinstance(f, float) else f for name, f in figures.items()})


if __name__ == "__main__":
    main()
