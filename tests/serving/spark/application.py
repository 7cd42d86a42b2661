"""A Spark application that is driven: jobs of sleeping tasks, one scenario after the other.

Run by test_real.py and benchmarks/spark.py with the environment of a SparkCluster:

    application.py DIRECTORY SCENARIO ...

A SCENARIO is `spark-fifo`, `spark-fair`, or a scheduler, each of which may be followed by +shadow,
+kill (of the scheduler's process, while jobs run), or +freeze. For each, a line of JSON.
"""

import json
import os
import signal
import statistics
import sys
import threading
import time
from pathlib import Path

import ganger.spark
from ganger.serving.guard import GuardConfig

# kind, tasks of two stages, seconds of a task, arrival
JOBS = [
    ("long", 24, 4, 0.25, 0.0),
    ("long", 20, 4, 0.25, 0.1),
    ("middle", 10, 2, 0.25, 0.2),
    ("short", 4, 1, 0.2, 0.4),
    ("short", 4, 1, 0.2, 0.6),
    ("middle", 8, 2, 0.25, 0.8),
    ("short", 3, 1, 0.2, 1.5),
]
TASKS = sum(first + second for _, first, second, *_ in JOBS)


def work(context, first, second, seconds):
    def sleep(one):
        time.sleep(seconds)
        return one % second, 1

    def sleep_again(pair):
        time.sleep(seconds)
        return pair

    counted = context.parallelize(range(first), first).map(sleep)
    pairs = counted.reduceByKey(lambda a, b: a + b, second).map(sleep_again).collect()
    assert sum(count for _, count in pairs) == first


def run_jobs(spark, jobs, fair=False, meanwhile=None):
    """Completion times, in order."""
    from pyspark import InheritableThread

    context = spark.sparkContext
    began = time.monotonic() + 0.2
    took_s = [None] * len(jobs)

    def one(number, kind, first, second, seconds, arrival_s):
        time.sleep(max(began + arrival_s - time.monotonic(), 0))
        at = time.monotonic()
        if fair:
            context.setLocalProperty("spark.scheduler.pool", f"fair-{number}")
        with ganger.spark.pool(spark, f"{kind}-{number}", kind=kind):
            work(context, first, second, seconds)
        took_s[number] = time.monotonic() - at

    threads = [
        InheritableThread(target=one, args=(number, *job)) for number, job in enumerate(jobs)
    ]
    for thread in threads:
        thread.start()
    if meanwhile is not None:
        time.sleep(1.0)
        meanwhile()
    for thread in threads:
        thread.join()
    return took_s


def run(spark, scenario, directory, jobs):
    scheduler, *how = scenario.split("+")
    if scheduler.startswith("spark-"):
        return {"jct_s": run_jobs(spark, jobs, fair=scheduler == "spark-fair")}
    guard = GuardConfig(deadline_s=1.0)
    with ganger.spark.driving(
        spark, scheduler, record=directory, shadow="shadow" in how, guard=guard
    ) as driver:

        def strike():
            number = signal.SIGKILL if "kill" in how else signal.SIGSTOP
            os.kill(driver.guard.process.pid, number)

        meanwhile = strike if {"kill", "freeze"} & {*how} else None
        took_s = run_jobs(spark, jobs, meanwhile=meanwhile)
    return {"jct_s": took_s, "counts": dict(driver.counts)}


def main():
    from pyspark.sql import SparkSession

    directory, *scenarios = sys.argv[1:]
    settings = ganger.spark.pools(Path(directory) / "fairscheduler.xml")
    spark = SparkSession.builder.appName("driven").config(map=settings).getOrCreate()
    context = spark.sparkContext
    slots = int(os.environ.get("SLOTS", "4"))
    end = time.monotonic() + 60
    while context.defaultParallelism < slots and time.monotonic() < end:
        time.sleep(0.1)
    for _ in range(2):  # executors start their Python, too
        context.parallelize(range(2 * slots), 2 * slots).map(lambda _: time.sleep(0.3)).count()
    print(json.dumps({"application": context.applicationId}), flush=True)
    for scenario in scenarios:
        result = run(spark, scenario, directory, JOBS)
        mean_s = statistics.mean(result["jct_s"])
        threads = [one.name for one in threading.enumerate() if one.name == "ganger-spark"]
        print(
            json.dumps({"scenario": scenario, "mean_jct_s": mean_s, "left": threads} | result),
            flush=True,
        )
    spark.stop()


if __name__ == "__main__":
    main()
