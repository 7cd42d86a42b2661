"""The page about a workload: what `ganger inspect` says, drawn."""

from html import escape
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.report.drawing import Chart, Charts
from ganger.report.page import Cell, charts, html_page, number, paragraph, section, table
from ganger.workload import FileSource, Job, load_source
from ganger.workload.inspection import Distribution, Inspection, inspect
from ganger.workload.model import topological_order

Floats = NDArray[np.float64]

_BINS = 48  # of the time in which jobs arrive
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_UNITS = ((86400.0 * 4, 86400.0, "days"), (3600.0 * 4, 3600.0, "hours"), (0.0, 1.0, "seconds"))
_SHAPES = 4


def workload_page(spec: str, drawn: Charts, executors: int | None = None) -> str:
    """The page.

    Args:
        spec: what `ganger inspect` takes.
        executors: of the cluster that load and verdicts are about; the log's own if None.

    Raises:
        WorkloadError: it cannot be read.
    """
    source = load_source(spec)
    seen = inspect(source, executors)
    jobs = source.workload().jobs if isinstance(source, FileSource) else ()
    lead = (
        f'<p class="lead">{escape(_headline(seen))}</p>\n<p class="quiet">{escape(_read(seen))}</p>'
    )
    sections = [
        _told(seen),
        _arrivals(seen, jobs, drawn),
        _sizes(seen, drawn),
        _shapes(seen, _examples(spec, jobs), drawn),
        _figures(seen),
    ]
    data = {"kind": "workload", "inspection": msgspec.to_builtins(seen)}
    return html_page(
        f"Workload {Path(seen.workload).name}", lead, [part for part in sections if part], data
    )


def _headline(seen: Inspection) -> str:
    said = f"{seen.jobs:,} jobs of {seen.tasks:,} tasks, {seen.work_s / 3600:,.1f} executor-hours"
    if seen.arrivals.span_s > 0:
        said += f", arrive within {_duration(seen.arrivals.span_s)}"
    if seen.executors is None:
        return said + ". How big the cluster is, is not known: --executors says it."
    if seen.load is None:
        return f"{said}, for {seen.executors:,} executors."
    return f"{said}: a load of {seen.load:.3f} on {seen.executors:,} executors."


def _read(seen: Inspection) -> str:
    what = " ".join(filter(None, (seen.format, seen.version)))
    rows = (
        f", {seen.rows:,} rows in {seen.files:,} file{'' if seen.files == 1 else 's'}"
        if seen.files
        else ""
    )
    return f"Read as {what}{rows}."


def _duration(seconds: float) -> str:
    for least, unit, name in _UNITS:
        if seconds >= least:
            return f"{seconds / unit:,.1f} {name}"
    raise AssertionError(seconds)


# --- sections


def _told(seen: Inspection) -> str:
    """Verdicts, findings and notes, as `inspect` has them."""

    def listed(title: str, lines: list[str]) -> str:
        items = "".join(f"<li>{escape(line)}</li>" for line in lines)
        return f"<h3>{title}</h3><ul>{items or '<li>none</li>'}</ul>"

    return section(
        "What is to be said of it",
        listed("Verdicts", [f"{verdict.severity}: {verdict.message}" for verdict in seen.verdicts]),
        listed("Findings of the reader", [
            f"{found.action} {found.count:,}: {found.reason} ({', '.join(found.places)})"
            for found in seen.findings
        ]),
        listed("Notes", list(seen.notes)) if seen.notes else "",
    )  # fmt: skip


def _arrivals(seen: Inspection, jobs: tuple[Job, ...], drawn: Charts) -> str:
    arrivals = seen.arrivals
    if arrivals.span_s <= 0:
        return section(
            "Arrivals",
            paragraph("These jobs have no arrivals of their own: they are drawn at random."),
        )
    _, unit, name = next(entry for entry in _UNITS if arrivals.span_s >= entry[0])
    times = np.array([job.arrival_s for job in jobs]) / unit
    counts, edges = np.histogram(times, bins=_BINS)
    over_time = drawn.histogram(
        "arrivals",
        "Arrivals over time",
        f"Jobs that arrive, over {name}; between {counts.min():,} and {counts.max():,} in a "
        f"{_BINS}th of the time",
        edges, counts.tolist(), x=name, y="jobs", log=False,
    )  # fmt: skip
    since = (
        "hour of the day" if arrivals.first else "hour of days that begin with the first arrival"
    )
    by_hour = None
    if arrivals.span_s > 86400:
        by_hour = drawn.bars(
            "by-hour", f"Arrivals by {since}", f"Jobs by {since}: {_counts(arrivals.by_hour)}",
            [str(hour) for hour in range(24)], arrivals.by_hour, x="hour", y="jobs", every=3,
        )  # fmt: skip
    by_weekday = None
    if arrivals.by_weekday is not None:
        by_weekday = drawn.bars(
            "by-weekday", "Arrivals by weekday",
            f"Jobs from Monday: {_counts(arrivals.by_weekday)}",
            _DAYS, arrivals.by_weekday, x="", y="jobs",
        )  # fmt: skip
    return section("Arrivals", charts(over_time, by_hour, by_weekday))


def _sizes(seen: Inspection, drawn: Charts) -> str:
    return section(
        "Jobs",
        charts(
            _spread(drawn, "tasks", "Tasks of a job", seen.sizes, "tasks", "jobs"),
            _spread(drawn, "work", "Work of a job", seen.job_work_s, "executor-seconds", "jobs"),
            _spread(drawn, "durations", "Mean task of a stage", seen.task_s, "seconds", "stages"),
            _spread(drawn, "limits", "Requested run time", seen.limit_s, "seconds", "stages"),
            _spread(drawn, "waits", "Recorded wait", seen.wait_s, "seconds", "jobs"),
        ),
    )


def _shapes(seen: Inspection, examples: list[Job], drawn: Charts) -> str:
    shape = seen.shape
    if shape.jobs_of_one_stage == seen.jobs:
        return ""
    return section(
        "Shapes",
        paragraph(
            f"{shape.jobs_of_one_stage:,} of {seen.jobs:,} jobs have one stage only. On average "
            f"{shape.serial_share:.0%} of a job's work is in series: on its critical path."
        ),
        charts(
            _spread(drawn, "stages", "Stages of a job", shape.stages, "stages", "jobs"),
            _spread(drawn, "depth", "Stages in a row", shape.depth, "stages", "jobs"),
            _spread(drawn, "width", "Stages side by side", shape.width, "stages", "jobs"),
            *(_dag(drawn, k, job) for k, job in enumerate(examples)),
        ),
    )


def _figures(seen: Inspection) -> str:
    named: list[tuple[str, Distribution | None]] = [
        ("tasks of a job", seen.sizes),
        ("work of a job, executor-seconds", seen.job_work_s),
        ("mean task of a stage, s", seen.task_s),
        ("requested run time, s", seen.limit_s),
        ("recorded wait, s", seen.wait_s),
        ("between arrivals, s", seen.arrivals.interarrival_s),
        ("stages of a job", seen.shape.stages),
        ("stages in a row", seen.shape.depth),
        ("stages side by side", seen.shape.width),
    ]
    rows: list[list[Cell]] = [
        [name, *(number(value, _form(value)) for value in (
            d.mean, d.least, d.median, d.p90, d.p99, d.most))]
        for name, d in named
        if d is not None
    ]  # fmt: skip
    users = (
        paragraph(
            f"{seen.users:,} users; {seen.busiest_user!r} has {seen.busiest_user_share:.0%} of the "
            "work."
        )
        if seen.users and seen.busiest_user_share is not None
        else ""
    )
    return section(
        "Figures",
        users,
        table(["", "mean", "least", "median", "p90", "p99", "most"], rows,
              "As `ganger inspect` prints them, and with --json unrounded, by the same names.",
              name="distributions"),
    )  # fmt: skip


def _form(value: float) -> str:
    return ",.0f" if value >= 1000 or value == int(value) else ",.3g"


def _counts(counts: tuple[int, ...]) -> str:
    return ", ".join(f"{count:,}" for count in counts)


# --- charts


def _spread(
    drawn: Charts, name: str, title: str, of: Distribution | None, x: str, y: str
) -> Chart | None:
    """A distribution; logarithmic where its values are far apart."""
    if of is None:
        return None
    bins = len(of.histogram)
    edges = of.least + np.expm1(np.linspace(0.0, np.log1p(of.most - of.least) or 1.0, bins + 1))
    log = of.most > 30 * max(of.least, 1.0)
    if log and edges[0] <= 0:
        edges[0] = edges[1] / 2  # an axis of powers has no 0
    return drawn.histogram(
        name, title, f"{title}: median {of.median:,.4g}, mean {of.mean:,.4g}, from {of.least:,.4g} "
        f"to {of.most:,.4g} {x}",
        edges, of.histogram, x=x, y=y, log=log,
    )  # fmt: skip


def _examples(spec: str, jobs: tuple[Job, ...]) -> list[Job]:
    """A few jobs of different shape, the ones that most jobs have first."""
    if not jobs:
        templates = load_source(spec).templates("train")
        jobs = tuple(Job(id=str(k), arrival_s=0.0, stages=s) for k, s in enumerate(templates))
    seen: dict[tuple[tuple[int, ...], ...], list[Job]] = {}
    for job in jobs:
        if len(job.stages) > 1:
            place = {stage.id: k for k, stage in enumerate(job.stages)}
            edges = tuple(tuple(place[parent] for parent in stage.parents) for stage in job.stages)
            seen.setdefault(edges, []).append(job)
    commonest = sorted(seen.values(), key=len, reverse=True)[:_SHAPES]
    return [found[0] for found in commonest]


def _dag(drawn: Charts, k: int, job: Job) -> Chart:
    """A job's stages from left to right, as large as their tasks are many."""
    level: dict[str, int] = {}
    for position in topological_order(job.stages):
        stage = job.stages[position]
        level[stage.id] = 1 + max((level[parent] for parent in stage.parents), default=-1)
    rows = [[s.id for s in job.stages if level[s.id] == n] for n in range(max(level.values()) + 1)]
    at = {
        name: (float(n), (i - (len(row) - 1) / 2.0))
        for n, row in enumerate(rows)
        for i, name in enumerate(row)
    }
    edges = [(at[parent], at[stage.id]) for stage in job.stages for parent in stage.parents]
    nodes = [(*at[stage.id], stage.task_count) for stage in job.stages]
    return drawn.graph(
        f"shape-{k}",
        f"Job {job.id}: {len(job.stages)} stages",
        f"The stages of job {job.id}: {len(rows)} in a row, at most {max(map(len, rows))} side by "
        f"side, with {', '.join(str(stage.task_count) for stage in job.stages)} tasks",
        nodes,
        edges,
    )
