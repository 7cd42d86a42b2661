"""How fast a reader reads, and how much memory that takes: on files made up here.

    python benchmarks/readers.py spark [--scale 1]     # 100 MB of event log
    python benchmarks/readers.py swf [--scale 1]       # a million rows

The peak is that of a process that does nothing else, less what importing the reader takes; seconds
are its CPU time, which others on the machine disturb least.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

STAGES, TASKS, EXECUTORS, CORES = 4, 250, 10, 4


def swf_log(scale: float) -> Iterator[str]:
    """Rows of jobs that hardly ever are alike, with what real ones have: unknown values, dirt."""
    rng = random.Random(0)
    yield "; Version: 2.2\n; UnixStartTime: 1000000000\n; MaxProcs: 4096\n"
    submit = 0
    for number in range(1, int(1e6 * scale) + 1):
        submit += int(rng.expovariate(1 / 30))
        wait, run = int(rng.expovariate(1 / 3600)), int(rng.lognormvariate(6, 2))
        processors = 2 ** rng.randrange(10)
        asked, status = 60 * (1 + run // 60 + rng.randrange(600)), rng.choice((1, 1, 1, 0, 5))
        if status == 5 and number % 3 == 0:
            wait = run = processors = -1
        yield (
            f"{number} {submit} {wait} {run} {processors} -1 {rng.randrange(10**6)} {processors} "
            f"{asked} -1 {status} {rng.randrange(500)} {rng.randrange(20)} -1 1 -1 -1 -1\n"
        )


def spark_log(scale: float) -> Iterator[str]:
    """Jobs of a chain of stages on ten executors, with the metrics that Spark writes along."""
    size = 0

    def event(name: str, **fields: object) -> str:
        nonlocal size
        line = json.dumps({"Event": f"SparkListener{name}", **fields}, separators=(",", ":")) + "\n"
        size += len(line)
        return line

    yield event("LogStart", **{"Spark Version": "3.5.0"})
    yield event("ApplicationStart", **{"App Name": "made up", "App ID": "app-1", "User": "someone"})
    for executor in range(EXECUTORS):
        info = {"Host": f"host{executor}", "Total Cores": CORES}
        yield event(
            "ExecutorAdded",
            **{"Timestamp": 0, "Executor ID": str(executor), "Executor Info": info},
        )
    job = task = now = 0
    while size < scale * 1e8:
        stages = [_stage(job * STAGES + i, i > 0) for i in range(STAGES)]
        yield event(
            "JobStart",
            **{
                "Job ID": job,
                "Submission Time": now,
                "Stage Infos": stages,
                "Stage IDs": [stage["Stage ID"] for stage in stages],
                "Properties": {"spark.sql.execution.id": str(job)},
            },
        )
        for stage in stages:
            yield event("StageSubmitted", **{"Stage Info": {**stage, "Submission Time": now}})
            for index in range(TASKS):
                launch = now + 1_000 * (index // (EXECUTORS * CORES))
                info = _task(task, index, launch)
                ids = {"Stage ID": stage["Stage ID"], "Stage Attempt ID": 0}
                yield event("TaskStart", **ids, **{"Task Info": {**info, "Finish Time": 0}})
                yield event(
                    "TaskEnd",
                    **ids,
                    **{
                        "Task Type": "ResultTask",
                        "Task End Reason": {"Reason": "Success"},
                        "Task Info": {**info, "Accumulables": _accumulables(task)},
                        "Task Executor Metrics": dict.fromkeys(_METRICS, 0),
                        "Task Metrics": {"Executor Run Time": 880, **dict.fromkeys(_METRICS, 123)},
                    },
                )
                task += 1
            now += 1_000 * -(-TASKS // (EXECUTORS * CORES))
            yield event("StageCompleted", **{"Stage Info": {**stage, "Completion Time": now}})
        yield event(
            "JobEnd",
            **{"Job ID": job, "Completion Time": now, "Job Result": {"Result": "JobSucceeded"}},
        )
        job += 1
    yield event("ApplicationEnd", Timestamp=now)


_METRICS = [f"Some Metric Of Many Number {i}" for i in range(24)]


def _stage(number: int, has_parent: bool) -> dict[str, object]:
    return {
        "Stage ID": number,
        "Stage Attempt ID": 0,
        "Stage Name": "count at Somewhere.scala:10",
        "Number of Tasks": TASKS,
        "RDD Info": [{"RDD ID": 10 * number + i, "Name": "MapPartitionsRDD"} for i in range(10)],
        "Parent IDs": [number - 1] if has_parent else [],
        "Details": "org.example.Somewhere.count(Somewhere.scala:10)\n" * 20,
    }


def _task(task: int, index: int, launch: int) -> dict[str, object]:
    return {
        "Task ID": task,
        "Index": index,
        "Attempt": 0,
        "Launch Time": launch,
        "Executor ID": str(index % EXECUTORS),
        "Host": f"host{index % EXECUTORS}",
        "Locality": "PROCESS_LOCAL",
        "Speculative": False,
        "Getting Result Time": 0,
        "Finish Time": launch + 900 + task % 97,
        "Failed": False,
        "Killed": False,
    }


def _accumulables(task: int) -> list[dict[str, object]]:
    return [
        {"ID": i, "Name": f"internal.metrics.number{i}", "Update": task, "Value": 7 * task}
        for i in range(20)
    ]


MAKERS: dict[str, Callable[[float], Iterator[str]]] = {"spark": spark_log, "swf": swf_log}

_READ = """
import resource, sys, time
from pathlib import Path
from ganger.workload.readers import {format} as reader
from ganger.workload.readers.findings import Findings
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
findings = Findings()
began = time.process_time()
jobs = list(reader.read([Path(sys.argv[1])], findings))
seconds = time.process_time() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(seconds, (peak - before) / 1024, findings.rows, len(jobs))
"""


def measure(name: str, path: Path) -> str:
    """Read a file in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _READ.format(format=name), str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, mebibytes, rows, jobs = done.stdout.split()
    size = path.stat().st_size / 1e6
    return (
        f"{name}: {size:.0f} MB, {int(rows):,} rows, {int(jobs):,} jobs in {float(seconds):.2f} s "
        f"({size / float(seconds):.0f} MB/s), {float(mebibytes):.0f} MiB above the start"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("format", choices=list(MAKERS))
    parser.add_argument("--scale", type=float, default=1.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "made_up"
        with open(path, "w") as file:
            file.writelines(MAKERS[arguments.format](arguments.scale))
        print(measure(arguments.format, path))


if __name__ == "__main__":
    main()
