"""Compiled and uncompiled, every run is the same to the bit: both must give the golden hashes.

The suite runs compiled; `NUMBA_DISABLE_JIT=1 pytest -m uncompiled` runs this file again without
the compiler. After a change of the simulator's rules that is meant, write the hashes anew and
review them as a diff:

    python tests/simulator/test_uncompiled.py
"""

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from ganger.schedulers import parse_scheduler
from ganger.simulator.simulate import Cluster, simulate
from ganger.workload import Job, PerTask, Pool, Stage, Wave, Waves, Workload

pytestmark = pytest.mark.uncompiled

GOLDEN = Path(__file__).with_name("golden.json")
KINDS = ("per_task", "pool", "linear", "inverted", "mixed")
EXECUTORS = (1, 3, 11)
SCHEDULERS = ("fifo", "fair", "srpt:cap=sqrt,c=1", "kshortest", "cpf", "random")
CASES = [
    f"{kind} executors={executors} {scheduler}"
    for kind in KINDS
    for executors in EXECUTORS
    for scheduler in SCHEDULERS
]
GANG_SCHEDULERS = ("fair", "fcfs", "wfp3:backfill=easy", "f2:backfill=conservative")
CASES += [
    f"gangs executors={executors} {scheduler}"
    for executors in EXECUTORS[1:]
    for scheduler in GANG_SCHEDULERS
]


def random_workload(kind):
    """Six jobs of up to six stages. Only `random()`: it is the same on every Python version."""
    rng = random.Random(kind)

    def below(n):
        return int(rng.random() * n)

    def seconds(count):
        return tuple(round(10 * rng.random(), 3) if below(8) else 0.0 for _ in range(count))

    def durations(tasks):
        chosen = KINDS[below(4)] if kind in ("mixed", "gangs") else kind
        if chosen == "per_task":
            return PerTask(seconds(tasks))
        if chosen == "pool":
            return Pool(seconds(1 + below(4)))
        levels = [
            Wave(
                executors=executors,
                fresh_s=seconds(below(3)),
                first_s=seconds(below(3)),
                rest_s=seconds(below(3)),
            )
            for executors in (2, 5, 9)
        ]
        levels[0] = Wave(executors=2, first_s=seconds(2))
        return Waves(levels=tuple(levels), warmup_s=1.5, interpolation=chosen)

    def stages():
        made = []
        for k in range(1 + below(6)):
            tasks = 1 + below(9)
            made.append(
                Stage(
                    id=str(k),
                    parents=tuple(str(p) for p in range(k) if below(3) == 0),
                    task_count=tasks,
                    durations=durations(tasks),
                )
            )
        return tuple(made)

    def some_gangs(stages):
        for one in stages:
            if kind != "gangs" or below(3) == 0:
                yield one
                continue
            yield structs.replace(
                one,
                gang=True,
                task_count=1 + below(3),
                durations=Pool(seconds(2)),
                limit_s=8.0 if below(2) else None,
            )

    arrival_s = [0.0, 0.0]
    while len(arrival_s) < 6:
        arrival_s.append(round(arrival_s[-1] + 20 * rng.random(), 3))
    return Workload(
        tuple(
            Job(id=str(j), arrival_s=at, stages=tuple(some_gangs(stages())))
            for j, at in enumerate(arrival_s)
        )
    )


def outcome(case):
    """Enough to see what changed, and a hash of every task's start, end, executor and place."""
    kind, executors, scheduler = case.split(" ", 2)
    result = simulate(
        Cluster(executors=int(executors.split("=")[1])),
        random_workload(kind),
        parse_scheduler(scheduler),
        seed=5,
        timeline=True,
        kill_at_limit=True,
    )
    digest = hashlib.sha256()
    for name in result.timeline.dtype.names:
        digest.update(np.ascontiguousarray(result.timeline[name]).tobytes())
    for times in (result.arrival_s, result.first_start_s, result.finish_s):
        digest.update(times.tobytes())
    return {
        "mean_jct_s": result.mean_jct_s,
        "events": result.events,
        "decisions": result.decisions,
        "sha256": digest.hexdigest(),
    }


@pytest.mark.parametrize("kind", (*KINDS, "gangs"))
def test_every_run_has_its_golden_outcome(kind):
    golden = json.loads(GOLDEN.read_text())
    assert list(golden) == CASES
    for case in CASES:
        if case.startswith(f"{kind} "):
            assert outcome(case) == golden[case], case


def test_the_order_of_hashes_has_no_influence():
    """Strings hash differently in each process unless told otherwise."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import test_uncompiled as t\n"
        "print(t.outcome('mixed executors=3 fair')['sha256'])"
    )
    golden = json.loads(GOLDEN.read_text())
    done = subprocess.run(
        [sys.executable, "-c", program, str(GOLDEN.parent)],
        env=os.environ | {"PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() == golden["mixed executors=3 fair"]["sha256"], done.stderr


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({case: outcome(case) for case in CASES}, indent=1) + "\n")
