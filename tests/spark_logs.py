"""Small event logs, written by hand: what Spark writes, less what nobody reads."""

import json
from pathlib import Path

SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"


def event(name, **fields):
    prefix = "" if "." in name else "SparkListener"
    return {"Event": f"{prefix}{name}", **fields}


def start(app="app-1", attempt=None, user="ada", version="3.5.0"):
    """The two events that begin a log."""
    told = {"App Name": "test", "App ID": app, "Timestamp": 0, "User": user}
    if attempt is not None:
        told["App Attempt ID"] = attempt
    return [event("LogStart", **{"Spark Version": version}), event("ApplicationStart", **told)]


def executor(name, cores=1, at=0, profile=0):
    info = {"Host": "h", "Total Cores": cores, "Resource Profile Id": profile}
    return event("ExecutorAdded", **{"Timestamp": at, "Executor ID": name, "Executor Info": info})


def removed(name, at):
    return event(
        "ExecutorRemoved", **{"Timestamp": at, "Executor ID": name, "Removed Reason": "gone"}
    )


def stage(number, tasks=1, parents=(), rdd=None, attempt=0, barrier=False):
    rdds = [{"RDD ID": 100 + number if rdd is None else rdd, "Barrier": barrier}]
    return {
        "Stage ID": number,
        "Stage Attempt ID": attempt,
        "Number of Tasks": tasks,
        "Parent IDs": list(parents),
        "RDD Info": rdds,
    }


def job(number, *stages, at=0, sql=None, root=None):
    properties = {}
    if sql is not None:
        properties["spark.sql.execution.id"] = str(sql)
    if root is not None:
        properties["spark.sql.execution.root.id"] = str(root)
    return event(
        "JobStart",
        **{
            "Job ID": number,
            "Submission Time": at,
            "Stage Infos": list(stages),
            "Stage IDs": [each["Stage ID"] for each in stages],
            "Properties": properties,
        },
    )


def job_end(number, at=10_000, result="JobSucceeded"):
    return event(
        "JobEnd",
        **{"Job ID": number, "Completion Time": at, "Job Result": {"Result": result}},
    )


def submitted(info, at=0):
    return event("StageSubmitted", **{"Stage Info": {**info, "Submission Time": at}})


def completed(info, at, submitted_at=0):
    times = {"Submission Time": submitted_at, "Completion Time": at}
    return event("StageCompleted", **{"Stage Info": {**info, **times}})


def task_start(number, stage_id, at=0):
    info = {"Task ID": number, "Launch Time": at}
    return event("TaskStart", **{"Stage ID": stage_id, "Stage Attempt ID": 0, "Task Info": info})


def task(
    number,
    stage_id,
    launch,
    finish,
    on="1",
    *,
    index=None,
    attempt=0,
    partition=None,
    reason="Success",
    run_ms=None,
):
    """The end of a task; `index` is its number unless told."""
    info = {
        "Task ID": number,
        "Index": number if index is None else index,
        "Launch Time": launch,
        "Finish Time": finish,
        "Executor ID": on,
    }
    if partition is not None:
        info["Partition ID"] = partition
    metrics = None if run_ms is None else {"Executor Run Time": run_ms}
    return event(
        "TaskEnd",
        **{
            "Stage ID": stage_id,
            "Stage Attempt ID": attempt,
            "Task End Reason": {"Reason": reason},
            "Task Info": info,
            "Task Metrics": metrics,
        },
    )


def sql_start(number, at=0):
    return event(f"{SQL}Start", executionId=number, time=at)


def sql_end(number, at=10_000):
    return event(f"{SQL}End", executionId=number, time=at)


END = event("ApplicationEnd", Timestamp=20_000)


def text(events):
    """JSON lines, as compact as Spark writes them."""
    return "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in events).encode()


def write(path: Path, events) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text(events))
    return path


def two_stages(app="app-1", at=0, **started):
    """A whole application: two tasks of 2 s and 3 s, then one of 1 s, on two cores."""
    first, second = stage(0, 2), stage(1, 1, [0])
    return [
        *start(app, **started),
        executor("1", 2, at),
        job(0, first, second, at=at),
        submitted(first, at),
        task(0, 0, at + 100, at + 2_100, index=0),
        task(1, 0, at + 100, at + 3_100, index=1),
        submitted(second, at + 3_110),
        task(2, 1, at + 3_150, at + 4_150, index=0),
        job_end(0, at + 4_200),
        END,
    ]
