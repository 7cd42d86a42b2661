"""Schedulers on a real Spark application of this machine, beside Spark's own.

    python benchmarks/spark.py --rounds 3 --schedulers spark-fifo,spark-fair,srpt,general,RUN

Seven jobs of sleeping tasks on 2 workers with 2 cores, one application, warm executors. The first
run, which also learns what tasks take, is not counted; then all schedulers in turn, --rounds times.
--events DIR keeps Spark's event log, to train a policy on: RUN.
"""

import argparse
import collections
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests" / "serving" / "spark"
sys.path.insert(0, str(TESTS))

from cluster import SparkCluster  # noqa: E402  from the tests

DEFAULT = "spark-fifo,spark-fair,fifo,fair,srpt,general"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--schedulers", default=DEFAULT)
    parser.add_argument("--events", type=Path)
    asked = parser.parse_args()
    schedulers = asked.schedulers.split(",")
    found = collections.defaultdict(list)
    latencies = collections.defaultdict(list)
    with SparkCluster() as cluster:
        seen = cluster.at / "seen"
        seen.mkdir()
        application = TESTS / "application.py"
        scenarios = ["fifo", *schedulers * asked.rounds]
        with subprocess.Popen(
            [sys.executable, str(application), str(seen), *scenarios],
            env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        ) as process:  # fmt: skip
            results = (json.loads(line) for line in process.stdout)
            next(results), next(results)  # the application's name, and the warming up
            for result in results:
                found[result["scenario"]].append(result["mean_jct_s"])
                print(f"{result['scenario']}: {result['mean_jct_s']:.2f} s", file=sys.stderr)
        for line in (seen / "decisions.jsonl").read_text().splitlines():
            answer = json.loads(line)["answer"]
            latencies[answer["scheduler"]].append(answer["latency_s"])
        if asked.events is not None:
            shutil.copytree(cluster.events, asked.events, dirs_exist_ok=True)
    print(f"{'scheduler':30s} mean JCT   least    most  decide p50     p99")
    for scheduler in schedulers:
        jct_s = found[scheduler]
        mean_s, least_s, most_s = statistics.mean(jct_s), min(jct_s), max(jct_s)
        line = f"{scheduler:30s} {mean_s:6.2f} s {least_s:5.2f} s {most_s:5.2f} s"
        if taken := sorted(latencies[scheduler]):
            p50_s, p99_s = taken[len(taken) // 2], taken[int(0.99 * len(taken))]
            line += f"   {1e3 * p50_s:6.1f} ms {1e3 * p99_s:6.1f} ms"
        print(line)


if __name__ == "__main__":
    main()
