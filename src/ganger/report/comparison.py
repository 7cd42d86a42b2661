"""The page about a comparison: who is better, by how much, for which jobs, and what it looked like.

All of it is computed from the files that `ganger compare` leaves; nothing is simulated again. Below
every table and chart stands which file and columns it is from.
"""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from ganger.errors import ConfigError, MissingExtraError
from ganger.evaluation.job_rows import JOBS_PARQUET, SUMMARY, TASKS_PARQUET
from ganger.evaluation.summary import (
    Floats,
    Group,
    Jobs,
    SchedulerFigures,
    Summary,
    jobs_of,
    least_jct_s,
    window_ends_s,
)
from ganger.evaluation.timeline import WINDOW, Setting, shown_setting
from ganger.report.drawing import Chart, Charts, Series
from ganger.report.gantt import Tasks, gantt, save_gantt
from ganger.report.page import (
    Cell,
    charts,
    details,
    html_page,
    number,
    paragraph,
    seconds,
    section,
    table,
)

if TYPE_CHECKING:
    from pyarrow import Table

_QUANTILES = (10, 25, 50, 75, 90, 95, 99)
_CDF_POINTS = 200
_BINS = 100  # of the time axis of a window
_FROM_JOBS = f"{JOBS_PARQUET}, a row for each job under each scheduler"


class _Comparison(NamedTuple):
    """What the files say; of one cluster and load, the one that is shown, in detail."""

    summary: Summary
    raw: dict[str, Any]
    setting: Setting
    figures: list[SchedulerFigures]
    """Of the setting shown, lowest mean JCT first: the order of everything on the page."""
    jobs: list[Jobs]
    jct_s: list[Floats]
    """Each [window, job]."""
    job_ids: list[str]
    """Of the window shown."""
    tasks: list[Tasks]

    @property
    def labels(self) -> list[str]:
        return [jobs.label for jobs in self.jobs]

    @property
    def where(self) -> str:
        return _where(self.setting)

    @property
    def several(self) -> bool:
        return len({(row.executors, row.load) for row in self.summary.schedulers}) > 1


def comparison_page(path: Path, drawn: Charts) -> str:
    """The page.

    Raises:
        ConfigError: a file is missing or damaged.
        MissingExtraError: there is no pyarrow.
    """
    about = _read(path)
    settings = about.summary.settings
    windows = len(about.jobs[0].windows)
    what = "window" if windows == 1 else "windows"
    title = f"{len(about.jobs)} schedulers on {windows} {what} of {settings['workload']}"
    said = "\n".join(f'<p class="lead">{escape(line)}</p>' for line in _headlines(about))
    lead = (
        f'{said}\n<p class="quiet">{windows} {what} of '
        f"{settings['jobs']:,} jobs, seed {settings['seed']}: {escape(settings['arrivals'])}, "
        f"{escape(about.where)}.</p>"
    )
    sections = [
        _figures(about, drawn),
        _pairs(about),
        _distributions(about, drawn),
        _sweep(about, drawn),
        _capacity(about),
        _window(about, drawn),
        _users(about),
        _settings(about),
    ]
    data = {"kind": "comparison", "summary": about.raw}
    return html_page(title, lead, [part for part in sections if part], data, "gantt.js")


# --- what the files say


def _read(path: Path) -> _Comparison:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise MissingExtraError("A report of a comparison", "report") from None
    file = path / SUMMARY
    try:
        raw = json.loads(file.read_bytes())
        summary = msgspec.convert(raw, Summary)
        file = path / JOBS_PARQUET
        table = parquet.read_table(file)
        shown = shown_setting(
            list(dict.fromkeys((s.executors, s.load) for s in summary.schedulers))
        )
        every = jobs_of(table, *shown)
        first = table.filter(_of_window(table, shown, every[0]))
        job_ids = first["job_id"].to_pylist()
        file = path / TASKS_PARQUET
        tasks = parquet.read_table(file) if file.exists() else None
    except (ArrowException, OSError, ValueError, KeyError, IndexError) as error:
        raise ConfigError(
            f"{file}: {type(error).__name__}: {error}; run its `ganger compare` again"
        ) from None
    figures = {(row.scheduler, row.mode): row for row in summary.schedulers
               if (row.executors, row.load) == shown}  # fmt: skip
    every.sort(key=lambda jobs: figures[jobs.name, jobs.mode].mean_jct_s)
    ends_s = window_ends_s(every)
    return _Comparison(
        summary=summary,
        raw=raw,
        setting=shown,
        figures=[figures[jobs.name, jobs.mode] for jobs in every],
        jobs=every,
        jct_s=[least_jct_s(jobs, ends_s) for jobs in every],
        job_ids=job_ids,
        tasks=[] if tasks is None else _tasks(tasks, every, job_ids),
    )


def _of_window(table: "Table", setting: Setting, jobs: Jobs) -> Any:
    """Which rows are of the window that is shown, under one scheduler."""
    import pyarrow.compute as pc

    executors, load = setting
    found = pc.is_null(table["load"]) if load is None else pc.equal(table["load"], load)
    for name, value in (("executors", executors), ("scheduler", jobs.name), ("mode", jobs.mode),
                        ("window", WINDOW)):  # fmt: skip
        found = pc.and_(found, pc.equal(table[name], value))
    return found


def _tasks(table: "Table", every: Sequence[Jobs], job_ids: list[str]) -> list[Tasks]:
    """Of each scheduler; of one that ran nothing, as a replay, none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = []
    for jobs in every if "scheduler" in table.column_names else []:
        own = table.filter(
            pc.and_(pc.equal(table["scheduler"], jobs.name), pc.equal(table["mode"], jobs.mode))
        )
        if not own.num_rows:
            continue
        rank = pc.index_in(own["job_id"], value_set=pa.array(job_ids))
        last_s = pc.max(own["finish_time"]).as_py()
        found.append(
            Tasks(
                jobs.label,
                f"until {last_s:,.0f} s",
                own["executor"].to_numpy(),
                rank.to_numpy().astype(np.int64),
                own["stage"].to_numpy(),
                own["starting_time"].to_numpy(),
                own["finish_time"].to_numpy(),
            )
        )
    return found


def _where(setting: Setting) -> str:
    executors, load = setting
    return f"on {executors:,} executors" + ("" if load is None else f" under load {load:g}")


def _shown_pairs(about: _Comparison) -> list[Any]:
    return [p for p in about.summary.pairs if (p.executors, p.load) == about.setting]


def _headlines(about: _Comparison) -> list[str]:
    """The best against the next; and the best learned one against the best other, if that is not
    the same."""
    pairs = _shown_pairs(about)
    if not pairs:
        return [f"{about.labels[0]} was run alone."]
    # Not one policy's most probable actions against its sampled ones.
    first = next((pair for pair in pairs if _policy(pair.a) != _policy(pair.b)), pairs[0])
    said = [first.sentence]
    learned = {jobs.label for jobs in about.jobs if jobs.mode in ("argmax", "sampled")}
    for pair in pairs:
        if len({pair.a, pair.b} & learned) == 1:
            said.append(pair.sentence)
            break
    return list(dict.fromkeys(said))


def _policy(label: str) -> str:
    return label.removesuffix(" (argmax)").removesuffix(" (sampled)")


# --- sections


def _figures(about: _Comparison, drawn: Charts) -> str:
    head = ["scheduler", "mean JCT", "p50", "p95", "p99", "mean wait", "slowdown", "utilisation"]
    unfinished = any(row.unfinished for row in about.figures)
    rows: list[list[Cell]] = []
    for label, row in zip(about.labels, about.figures, strict=True):
        rows.append([
            label,
            *map(seconds, (row.mean_jct_s, row.p50_jct_s, row.p95_jct_s, row.p99_jct_s)),
            seconds(row.mean_wait_s), number(row.mean_slowdown, ",.2f"),
            number(row.utilisation, ".1%"),
        ])  # fmt: skip
        if unfinished:
            rows[-1].append(number(row.unfinished, ",d"))
    source = (
        f"From {_FROM_JOBS}: JCT, the job completion time, is turnaround_time, and its mean one "
        "over windows; wait is waiting_time; slowdown is max(1, turnaround_time / "
        "max(critical_path_s, 10 s)); utilisation is window_busy_s / (executors × the time from "
        f"the first submission_time to the last finish_time). The same in {SUMMARY}, schedulers."
    )
    said = paragraph(
        f"{sum(row.unfinished for row in about.figures):,} jobs did not finish; each counts as if "
        "it had at the end of its window, the least that it can be.", "warn"
    ) if unfinished else ""  # fmt: skip
    pairs = _shown_pairs(about)
    chart = None
    if pairs:
        best = pairs[0].a
        against = [pair for pair in pairs if pair.a == best]
        rows_ = [
            (pair.b, pair.ratio, _bounds(pair.low, pair.high),
             _bounds(pair.adjusted_low, pair.adjusted_high))
            for pair in against
        ]  # fmt: skip
        chart = drawn.intervals(
            "ratios",
            f"Mean JCT of {best} over each other's",
            f"Ratios of mean job completion times of {best} to "
            + "; ".join(f"{b}'s: {ratio:.3f}" for b, ratio, *_ in rows_),
            rows_,
            [about.labels.index(pair.b) for pair in against],
            x="ratio, with intervals",
        )
    return section(
        f"Figures, {about.where}" if about.several else "Figures",
        table([*head, "unfinished"] if unfinished else head, rows, source, name="figures"),
        said,
        charts(chart, _by_window(about, drawn)),
        _source(
            "Thick lines are 95 % intervals of a pair, thin ones allow for all pairs at once; "
            "the figures are below, pair by pair."
        )
        if chart
        else "",
    )


def _by_window(about: _Comparison, drawn: Charts) -> Chart | None:
    """Every window's mean."""
    if len(about.jobs[0].windows) < 2:
        return None
    best = about.jct_s[0].mean(axis=1)
    order = np.argsort(best, kind="stable")
    series = [
        Series(label, np.arange(1, len(order) + 1, dtype=np.float64), jct.mean(axis=1)[order], k)
        for k, (label, jct) in enumerate(zip(about.labels, about.jct_s, strict=True))
    ]
    return drawn.lines(
        "windows",
        "Mean JCT of each window",
        f"Each window's mean job completion time under each scheduler; windows are in the order of "
        f"{about.labels[0]}'s mean",
        series,
        x=f"windows, from {about.labels[0]}'s shortest to its longest mean",
        y="seconds",
        log_y=True,
    )


def _bounds(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (low, high)


def _pairs(about: _Comparison) -> str:
    pairs = _shown_pairs(about)
    if not pairs:
        return ""
    head = ["scheduler", "against", "verdict", "ratio", "95 %", "of all pairs", "better in",
            "worst window", "its ratio"]  # fmt: skip
    rows: list[list[Cell]] = []
    for pair in about.summary.pairs:
        rows.append([
            pair.a, pair.b, pair.verdict, number(pair.ratio, ".3f"), _range(pair.low, pair.high),
            _range(pair.adjusted_low, pair.adjusted_high),
            f"{pair.better_in} of {pair.windows}", number(pair.worst_window, "d"),
            number(pair.worst_ratio, ".3f"),
        ])  # fmt: skip
        if about.several:
            rows[-1].insert(0, _where((pair.executors, pair.load)))
    source = (
        f"From {_FROM_JOBS}: turnaround_time averaged by window, then the mean over windows of one "
        "scheduler's by the other's, and a bootstrap over windows, 10,000 draws. The same in "
        f"{SUMMARY}, pairs."
    )
    every = pairs[0].comparisons
    several = (
        f"{every} comparisons were made at once. Each interval in a sentence is that of one, 95 %; "
        "whether two are told apart is read from an interval that allows for all of them "
        "(Bonferroni)."
        if every > 1
        else ""
    )
    best = [pair for pair in pairs if pair.a == pairs[0].a]
    rest = [pair for pair in pairs if pair.a != pairs[0].a]

    def sentences(of: Sequence[Any]) -> str:
        return "<ul>" + "".join(f"<li>{escape(pair.sentence)}</li>" for pair in of) + "</ul>"

    words = 4 if about.several else 3
    return section(
        "Pair by pair",
        sentences(best),
        details(f"{len(rest)} more pairs in words", sentences(rest)) if rest else "",
        paragraph(several) if several else "",
        details(
            f"All {len(rows)} pairs in figures",
            table(["where", *head] if about.several else head, rows, source, words=words,
                  name="pairs"),
        ),
    )  # fmt: skip


def _range(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.3f} to {high:.3f}"


def _distributions(about: _Comparison, drawn: Charts) -> str:
    share = np.linspace(0, 1, _CDF_POINTS)
    labels = about.labels
    cdf = drawn.lines(
        "cdf",
        "How many jobs are done within which time",
        "Share of jobs with a completion time up to each, by scheduler; medians: "
        + ", ".join(f"{label} {row.p50_jct_s:.1f} s"
                    for label, row in zip(labels, about.figures, strict=True)),
        [Series(label, np.quantile(jct, share), share, k)
         for k, (label, jct) in enumerate(zip(labels, about.jct_s, strict=True))],
        x="completion time, s",
        y="share of jobs",
        log_x=True,
        zero=True,
    )  # fmt: skip
    names = [group.name for group in about.figures[0].by_size]
    by_size = drawn.dots(
        "slowdown",
        "Slowdown by size of job",
        "Mean slowdown of jobs of each size class by scheduler; the table below has the figures",
        [_short_class(name) for name in names],
        [(label, np.array([group.mean_slowdown for group in row.by_size]), k)
         for k, (label, row) in enumerate(zip(labels, about.figures, strict=True))],
        x="executor-seconds of a job",
        y="mean slowdown",
    )  # fmt: skip
    quantiles: list[list[Cell]] = [
        [label, *map(seconds, np.percentile(jct, _QUANTILES).tolist())]
        for label, jct in zip(labels, about.jct_s, strict=True)
    ]
    return section(
        "Which jobs gain, which pay",
        charts(cdf, by_size),
        _groups("by-size", "executor-seconds", [row.by_size for row in about.figures], labels,
                f"From {_FROM_JOBS}: classes by work_s; JCT is turnaround_time, wait is "
                f"waiting_time. The same in {SUMMARY}, schedulers, by_size."),
        details(
            "Completion times in figures",
            table(["scheduler", *(f"p{q}" for q in _QUANTILES)], quantiles,
                  f"Percentiles of turnaround_time of all windows, {_FROM_JOBS}."),
        ),
    )  # fmt: skip


def _short_class(name: str) -> str:
    """Of a size, for an axis."""
    words = name.replace(",000,000", " M").replace(",000", " k").replace("less than", "<")
    return words.replace(" to ", "\nto ")


def _groups(name: str, what: str, of: list[list[Group]], labels: list[str], source: str) -> str:
    """Groups of jobs: a row each, and under each scheduler mean JCT, wait and slowdown."""
    names = list(dict.fromkeys(group.name for groups in of for group in groups))
    found = [{group.name: group for group in groups} for groups in of]
    rows: list[list[Cell]] = []
    for group_name in names:
        for label, groups in zip(labels, found, strict=True):
            if (group := groups.get(group_name)) is not None:
                rows.append([
                    group_name, label, number(group.jobs, ",d"), seconds(group.mean_jct_s),
                    seconds(group.mean_wait_s), number(group.mean_slowdown, ",.2f"),
                ])  # fmt: skip
    head = [what, "scheduler", "jobs", "mean JCT", "mean wait", "slowdown"]
    title = f"{len(names)} classes of {what} in figures" if name == "by-size" else "In figures"
    return details(title, table(head, rows, source, words=2, name=name))


def _users(about: _Comparison) -> str:
    if not any(row.by_user for row in about.figures):
        return ""
    return section(
        "By user",
        paragraph("The users with most jobs."),
        _groups("by-user", "user", [row.by_user for row in about.figures], about.labels,
                f"From {_FROM_JOBS}, by user. The same in {SUMMARY}, schedulers, by_user."),
    )  # fmt: skip


def _window(about: _Comparison, drawn: Charts) -> str:
    """One window: jobs and executors over time, and every task."""
    ends_s = [(jobs.arrival_s + jct)[0] for jobs, jct in zip(about.jobs, about.jct_s, strict=True)]
    edges = np.linspace(0.0, max(float(end.max()) for end in ends_s), _BINS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    in_system = [
        Series(jobs.label, middle, _mean_level(jobs.arrival_s[0], end, edges), k)
        for k, (jobs, end) in enumerate(zip(about.jobs, ends_s, strict=True))
    ]
    shown: list[Chart | None] = [
        drawn.lines(
            "jobs-in-system", "Jobs in the system", "Jobs that have arrived and not ended, over "
            "time; at most " + ", ".join(f"{s.label} {s.y.max():.0f}" for s in in_system),
            in_system, x="seconds", y="jobs", zero=True,
        )
    ]  # fmt: skip
    parts = [paragraph(
        f"The first window, {about.where}: it is chosen before anything is known about it. Means "
        f"over {edges[1]:,.3g} s each."
    )]  # fmt: skip
    if about.tasks:
        places = {label: k for k, label in enumerate(about.labels)}
        busy = [
            Series(tasks.label, middle, _mean_level(tasks.start_s, tasks.finish_s, edges),
                   places[tasks.label])
            for tasks in about.tasks
        ]  # fmt: skip
        shown.append(drawn.lines(
            "executors-in-use", "Executors in use", "Executors that run a task, over time; on "
            "average until the last job ended " + ", ".join(
                f"{s.label} {s.y.sum() * edges[1] / max(float(t.finish_s.max()), 1e-9):.1f}"
                for s, t in zip(busy, about.tasks, strict=True)),
            busy, x="seconds", y="executors", zero=True,
        ))  # fmt: skip
    parts.append(charts(*shown))
    parts.append(_source(
        f"From {JOBS_PARQUET}, rows with window {WINDOW}: submission_time and finish_time."
        + (f" And from {TASKS_PARQUET}, a row for each task: executor, job_id, stage, "
           "starting_time, finish_time." if about.tasks else "")
    ))  # fmt: skip
    if about.tasks:
        parts.append(gantt(about.tasks, about.job_ids, about.setting[0]))
        save_gantt(drawn, about.tasks, about.setting[0])
    return section("One window, task by task", *parts)


def _source(text: str) -> str:
    return paragraph(text, "source")


def _mean_level(begin_s: Floats, end_s: Floats, edges: Floats) -> Floats:
    """How many of the intervals hold, on average between each two edges."""
    # The integral up to t of one interval is min(t, end) - min(t, begin).
    upto = np.zeros(len(edges))
    for times_s, sign in ((np.sort(end_s), 1.0), (np.sort(begin_s), -1.0)):
        before = np.searchsorted(times_s, edges)
        sums = np.append(0.0, np.cumsum(times_s))[before]
        upto += sign * (sums + (len(times_s) - before) * edges)
    return np.asarray(np.diff(upto) / np.diff(edges))


def _sweep(about: _Comparison, drawn: Charts) -> str:
    """Mean JCT over load, or over the size of the cluster."""
    if not about.several:
        return ""
    summary = about.summary
    settings = list(dict.fromkeys((row.executors, row.load) for row in summary.schedulers))
    sizes = sorted({executors for executors, _ in settings})
    loads = sorted({load for _, load in settings if load is not None})
    of = {(row.scheduler, row.mode, row.executors, row.load): row for row in summary.schedulers}
    shown: list[Chart | None] = []

    def chart(name: str, title: str, x: str, over: list[Setting], ticks: list[float]) -> Chart:
        series = [
            Series(
                jobs.label,
                np.array(ticks, np.float64),
                np.array([of[jobs.name, jobs.mode, *setting].mean_jct_s for setting in over]),
                k,
            )
            for k, jobs in enumerate(about.jobs)
        ]
        alt = "Mean job completion time by scheduler over " + x + "; the table has the figures"
        return drawn.lines(name, title, alt, series, x=x, y="mean JCT, s", log_y=True, marks=True)

    if len(loads) > 1:
        for size in sizes:
            title = f"Mean JCT by load, on {size:,} executors"
            over: list[Setting] = [(size, load) for load in loads]
            shown.append(chart(f"load-{size}", title, "offered load", over, loads))
    if len(sizes) > 1:
        load = about.setting[1]
        under = "" if load is None else f", under load {load:g}"
        over = [(size, load) for size in sizes]
        title = f"Mean JCT by size of the cluster{under}"
        shown.append(chart("executors", title, "executors", over, list(map(float, sizes))))
    winners: list[list[Cell]] = []
    seen = set()
    for pair in summary.pairs:
        if (pair.executors, pair.load) not in seen:
            seen.add((pair.executors, pair.load))
            winners.append([
                _where((pair.executors, pair.load)), pair.a, pair.b, pair.verdict,
                number(pair.ratio, ".3f"), _range(pair.low, pair.high),
            ])  # fmt: skip
    rows: list[list[Cell]] = [
        [_where(setting), *(seconds(of[jobs.name, jobs.mode, *setting].mean_jct_s)
                            for jobs in about.jobs)]
        for setting in settings
    ]  # fmt: skip
    source = f"From {_FROM_JOBS}: turnaround_time, by executors and load. The same in {SUMMARY}"
    return section(
        "Where each wins",
        table(["where", "best", "next", "verdict", "ratio", "95 %"], winners,
              f"{source}, pairs.", words=4, name="winners"),
        charts(*shown),
        details("Mean JCT in figures",
                table(["where", *about.labels], rows, f"{source}, schedulers.", name="sweep")),
    )  # fmt: skip


def _capacity(about: _Comparison) -> str:
    if not about.summary.capacity:
        return ""
    today, *others = about.summary.capacity
    money = "cost" in today
    rows: list[list[Cell]] = []
    for row in (today, *others):
        mode = row["mode"]
        label = (
            f"{row['scheduler']} ({mode})" if mode in ("argmax", "sampled") else row["scheduler"]
        )
        if row["executors"] is None:
            rows.append([label, "more than were tried", "", "", ""])
        else:
            rows.append([
                label, number(row["executors"], ",d"), seconds(row["mean_jct_s"]),
                number(row["executor_hours"], ",.2f"), number(row["saved"], ".1%"),
            ])  # fmt: skip
        if money:
            rows[-1].append(number(row.get("cost"), ",.2f"))
    head = ["scheduler", "executors", "mean JCT", "executor-hours", "saved"]
    better = [row for row in others if row["executors"] is not None and row["saved"] > 0]
    said = (
        f"{today['executors']:,} executors give a mean JCT of {today['mean_jct_s']:,.1f} s under "
        f"{today['scheduler']}."
    )
    if better:
        most = max(better, key=lambda row: row["saved"])
        said += (
            f" Under {most['scheduler']}, {most['executors']:,} are enough: {most['saved']:.1%} "
            "fewer executor-hours."
        )
    return section(
        "How large a cluster",
        paragraph(said),
        table([*head, "cost"] if money else head, rows,
              "Executor-hours are executors × the mean time from a window's first arrival to its "
              "last finish. These clusters were simulated for this table alone: its figures are "
              f"in {SUMMARY}, capacity, and of these {JOBS_PARQUET} has the rows of today's "
              "cluster only.", name="capacity"),
    )  # fmt: skip


def _settings(about: _Comparison) -> str:
    settings = about.summary.settings
    names = {
        "workload": "Workload", "part": "Part of it", "arrivals": "Arrivals",
        "jobs": "Jobs in a window", "episodes": "Windows, at most",
        "executors": "Executors", "loads": "Offered loads",
        "move_delay_s": "Seconds to change jobs", "reconsider": "Reconsiders after arrivals",
        "work_conserving": "Work-conserving", "seed": "Seed",
    }  # fmt: skip
    items = "".join(
        f"<dt>{escape(title)}</dt><dd>{escape(_setting(settings[name]))}</dd>"
        for name, title in names.items()
        if name in settings
    )
    schedulers = "".join(
        f"<li>{escape(name)}{f', parameters {escape(digest)}' if digest else ''}</li>"
        for name, digest in settings["schedulers"].items()
    )
    return section(
        "What was compared",
        f"<dl>{items}</dl>",
        f"<h3>Schedulers</h3><ul>{schedulers}</ul>",
        _source(
            "From settings.json. The comparison's directory also has jobs.csv, the same rows with "
            "Batsim's column names."
        ),
    )


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_setting, value))
    if value is None:
        return "the workload's own"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)
