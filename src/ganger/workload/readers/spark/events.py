"""The events of a Spark log that say what ran when, and the few fields of each that are needed.

A log is JSON lines, an event each. Most of their bytes are metrics, plans and call sites: the name
of an event is looked at first, and a field that is not listed here is skipped by the decoder.

Source: Spark's own writer, org.apache.spark.util.JsonProtocol, as its logs from 1.2 to 4 show it;
older logs lack fields, so whatever a version lacks has a default.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

# A number beyond these is damage, not a measurement. Times are milliseconds: 1e14 is in year 5138.
Ms = Annotated[int, Meta(ge=0, le=10**14)]
Id = Annotated[int, Meta(ge=0, lt=2**31)]
TaskId = Annotated[int, Meta(ge=0, lt=2**62)]
Count = Annotated[int, Meta(ge=0, lt=2**31)]
Cores = Annotated[int, Meta(ge=0, le=100_000)]
Amount = Annotated[float, Meta(ge=0.0, le=1e15)]


class LogStart(Struct, kw_only=True):
    version: str = field(name="Spark Version", default="")


class ApplicationStart(Struct, kw_only=True):
    name: str = field(name="App Name", default="")
    id: str | None = field(name="App ID", default=None)
    attempt: str | None = field(name="App Attempt ID", default=None)
    user: str | None = field(name="User", default=None)


class ApplicationEnd(Struct, kw_only=True):
    time: Ms | None = field(name="Timestamp", default=None)


class Environment(Struct, kw_only=True):
    """Every setting; only one is needed, so values are kept as they are."""

    properties: dict[str, Any] = field(name="Spark Properties", default_factory=dict)


class Requested(Struct, kw_only=True):
    amount: Amount = field(name="Amount", default=0.0)


class ResourceProfile(Struct, kw_only=True):
    id: Id = field(name="Resource Profile Id")
    executor: dict[str, Requested] = field(name="Executor Resource Requests", default_factory=dict)
    task: dict[str, Requested] = field(name="Task Resource Requests", default_factory=dict)


class ExecutorInfo(Struct, kw_only=True):
    cores: Cores = field(name="Total Cores")
    profile: Id = field(name="Resource Profile Id", default=0)


class ExecutorAdded(Struct, kw_only=True):
    time: Ms = field(name="Timestamp")
    id: str = field(name="Executor ID")
    info: ExecutorInfo = field(name="Executor Info")


class ExecutorRemoved(Struct, kw_only=True):
    time: Ms = field(name="Timestamp")
    id: str = field(name="Executor ID")


class Rdd(Struct, kw_only=True):
    id: Id = field(name="RDD ID")
    barrier: bool = field(name="Barrier", default=False)


class StageInfo(Struct, kw_only=True):
    id: Id = field(name="Stage ID")
    attempt: Id = field(name="Stage Attempt ID", default=0)
    tasks: Count = field(name="Number of Tasks")
    parents: list[Id] | None = field(name="Parent IDs", default=None)
    rdds: list[Rdd] = field(name="RDD Info", default_factory=list)
    submitted: Ms | None = field(name="Submission Time", default=None)
    completed: Ms | None = field(name="Completion Time", default=None)


class JobProperties(Struct, kw_only=True):
    execution: str | None = field(name="spark.sql.execution.id", default=None)
    root: str | None = field(name="spark.sql.execution.root.id", default=None)


class JobStart(Struct, kw_only=True):
    id: Id = field(name="Job ID")
    time: Ms | None = field(name="Submission Time", default=None)
    infos: list[StageInfo] = field(name="Stage Infos", default_factory=list)
    stages: list[Id] = field(name="Stage IDs", default_factory=list)
    properties: JobProperties | None = field(name="Properties", default=None)


class JobResult(Struct, kw_only=True):
    result: str = field(name="Result", default="")


class JobEnd(Struct, kw_only=True):
    id: Id = field(name="Job ID")
    time: Ms | None = field(name="Completion Time", default=None)
    result: JobResult = field(name="Job Result", default_factory=JobResult)


class StageSubmitted(Struct, kw_only=True):
    info: StageInfo = field(name="Stage Info")


class StageCompleted(Struct, kw_only=True):
    info: StageInfo = field(name="Stage Info")


class TaskStartInfo(Struct, kw_only=True):
    id: TaskId = field(name="Task ID")


class TaskStart(Struct, kw_only=True):
    info: TaskStartInfo = field(name="Task Info")


class Reason(Struct, kw_only=True):
    reason: str = field(name="Reason", default="")


class TaskInfo(Struct, kw_only=True):
    id: TaskId = field(name="Task ID")
    index: Id = field(name="Index")
    partition: int | None = field(name="Partition ID", default=None)
    launch: Ms = field(name="Launch Time")
    finish: Ms = field(name="Finish Time", default=0)
    executor: str = field(name="Executor ID")


class TaskMetrics(Struct, kw_only=True):
    run_ms: Ms | None = field(name="Executor Run Time", default=None)


class TaskEnd(Struct, kw_only=True):
    stage: Id = field(name="Stage ID")
    attempt: Id = field(name="Stage Attempt ID", default=0)
    reason: Reason = field(name="Task End Reason")
    info: TaskInfo = field(name="Task Info")
    metrics: TaskMetrics | None = field(name="Task Metrics", default=None)


class SqlStart(Struct, kw_only=True):
    id: TaskId = field(name="executionId")
    time: Ms


class SqlEnd(Struct, kw_only=True):
    id: TaskId = field(name="executionId")
    time: Ms


Event = (
    LogStart
    | ApplicationStart
    | ApplicationEnd
    | Environment
    | ResourceProfile
    | ExecutorAdded
    | ExecutorRemoved
    | JobStart
    | JobEnd
    | StageSubmitted
    | StageCompleted
    | TaskStart
    | TaskEnd
    | SqlStart
    | SqlEnd
)

_SQL = b"org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"

_TYPES: Mapping[bytes, type[Event]] = {
    b"SparkListenerLogStart": LogStart,
    b"SparkListenerApplicationStart": ApplicationStart,
    b"SparkListenerApplicationEnd": ApplicationEnd,
    b"SparkListenerEnvironmentUpdate": Environment,
    b"SparkListenerResourceProfileAdded": ResourceProfile,
    b"SparkListenerExecutorAdded": ExecutorAdded,
    b"SparkListenerExecutorRemoved": ExecutorRemoved,
    b"SparkListenerJobStart": JobStart,
    b"SparkListenerJobEnd": JobEnd,
    b"SparkListenerStageSubmitted": StageSubmitted,
    b"SparkListenerStageCompleted": StageCompleted,
    b"SparkListenerTaskStart": TaskStart,
    b"SparkListenerTaskEnd": TaskEnd,
    _SQL + b"Start": SqlStart,
    _SQL + b"End": SqlEnd,
}

_DECODERS = {name: msgspec.json.Decoder(kind) for name, kind in _TYPES.items()}


class _Named(Struct, kw_only=True):
    event: str = field(name="Event")


_named = msgspec.json.Decoder(_Named)

_PREFIX = b'{"Event":"'
_START = len(_PREFIX)

_EVENT = re.compile(rb'"Event"\s*:\s*"[\w.$]*SparkListener')
_FIRST_EVENT = re.compile(rb'\s*\{\s*"Event"\s*:\s*"')


def looks_like_events(head: bytes) -> bool:
    """Whether a file that begins so is a Spark event log."""
    return _FIRST_EVENT.match(head) is not None or (
        head.lstrip()[:1] == b"{" and _EVENT.search(head) is not None
    )


class UnreadableError(Exception):
    """A line that is no event, or an event without what it must have."""


def decode(line: bytes) -> Event | None:
    """The event of a line; None for one that nothing here depends on, also if it is unknown.

    Raises:
        UnreadableError: with the kind of damage.
    """
    if line.startswith(_PREFIX):
        name = line[_START : line.find(b'"', _START)]
    else:
        try:
            name = _named.decode(line).event.encode()
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise UnreadableError("line is not an event in JSON") from None
    decoder = _DECODERS.get(name)
    if decoder is None:
        if not line.endswith(b"}"):  # all that can be said of what is not decoded
            raise UnreadableError("line is not an event in JSON")
        return None
    try:
        return decoder.decode(line)
    except msgspec.ValidationError:
        raise UnreadableError("event lacks a field or has an impossible one") from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise UnreadableError("line is not an event in JSON") from None
