"""Memory of a long training run on Ray: what each process has of its own, and shared memory.

    python benchmarks/soak.py CSV [--minutes M] [--actors N] [--workload SPEC] [--every S]

A row each S seconds: minutes, decisions, and MB of the learner's process, of the acting processes
together, of Ray's own, and in /dev/shm.
"""

import argparse
import csv
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from ganger.training.config import TrainConfig
from ganger.training.loop import train

COLUMNS = ("minutes", "decisions", "lag_mean", "learner_mb", "actors_mb", "ray_mb", "shm_mb")


def memory_mb() -> dict[str, float]:
    """Unshared memory by kind of process, and what lies in shared memory."""
    me = psutil.Process()
    sizes = {"learner_mb": me.memory_full_info().uss / 1e6, "actors_mb": 0.0, "ray_mb": 0.0}
    for process in me.children(recursive=True):
        try:
            kind = "actors_mb" if "ActingProcess" in " ".join(process.cmdline()) else "ray_mb"
            sizes[kind] += process.memory_full_info().uss / 1e6
        except psutil.Error:
            continue  # it ended a moment ago
    return sizes | {"shm_mb": psutil.disk_usage("/dev/shm").used / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("csv", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--workload", default="synthetic")
    parser.add_argument("--every", type=float, default=10.0)
    given = parser.parse_args()
    last: dict[str, Any] = {"decisions": 0, "lag_mean": 0.0}
    ended = threading.Event()
    begin = time.monotonic()

    def watch() -> None:
        with given.csv.open("w", newline="") as file:
            table = csv.DictWriter(file, COLUMNS)
            table.writeheader()
            while not ended.wait(given.every):
                row = {"minutes": (time.monotonic() - begin) / 60} | memory_mb()
                row |= {name: last[name] for name in ("decisions", "lag_mean")}
                table.writerow({name: round(row[name], 2) for name in COLUMNS})
                file.flush()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        config = TrainConfig(
            workload=given.workload,
            engine="ray",
            actors=given.actors,
            minutes=given.minutes,
        )
        with tempfile.TemporaryDirectory() as directory:
            outcome = train(config, Path(directory) / "run", progress=last.update)
    finally:
        ended.set()
        watching.join()
    print(
        f"{outcome.decisions:,} decisions, {outcome.updates:,} updates; ended by {outcome.reason}"
    )


if __name__ == "__main__":
    main()
