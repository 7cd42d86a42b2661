"""The page about a training run: how good the policy became, how fast, and how steadily.

All of it is read from the run directory, of a run that has ended or one under way.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.errors import ConfigError
from ganger.policy.checkpoint import read_json
from ganger.report.drawing import Chart, Charts, Series, thinned
from ganger.report.page import (
    Cell,
    charts,
    details,
    html_page,
    number,
    paragraph,
    section,
    table,
)
from ganger.training.config import OWN_FIGURES, REASONS
from ganger.training.run_directory import RunDirectory

Floats = NDArray[np.float64]

_ROWS = 24  # of the table of updates
_FROM = "metrics.jsonl"
_COLUMNS = {
    "decisions": ",.0f",
    "recent_ratio": ".3f",
    "decisions_per_s": ",.0f",
    "lag_mean": ".2f",
    "importance_mean": ".4f",
    "importance_clipped": ".1%",
    "entropy": ".3f",
    "kl": ".5f",
    "explained_variance": ".3f",
}


class _Run(NamedTuple):
    """What the directory says."""

    name: str
    settings: dict[str, Any]
    provenance: dict[str, Any]
    stop_reason: str | None
    updates: list[dict[str, Any]]
    validations: list[dict[str, Any]]

    def column(self, name: str) -> Floats:
        """Of the updates; NaN where there is no value."""
        return _floats(self.updates, name)

    @property
    def minutes(self) -> Floats:
        return self.column("elapsed_s") / 60

    def validated_at(self) -> Floats:
        """Minutes at which the validated policies were there."""
        steps = self.column("step")
        at = np.searchsorted(steps, _floats(self.validations, "step")).clip(0, len(steps) - 1)
        return np.asarray(self.minutes[at])

    @property
    def figure(self) -> str:
        """What the objective makes small."""
        return OWN_FIGURES.get(self.settings.get("objective", "mean"), "mean JCT")


def training_page(path: Path, drawn: Charts) -> str:
    """The page.

    Raises:
        ConfigError: nothing has been learned yet.
        CheckpointError: it is not a run directory.
    """
    about = _read(path)
    best = _best(about)
    lead = f'<p class="lead">{escape(_headline(about, best))}</p>'
    sections = [
        _learning(about, drawn),
        _speed(about, drawn),
        _correction(about, drawn),
        _steadiness(about, drawn),
        _numbers(about),
        _settings(about),
    ]
    data = {
        "kind": "training run",
        "settings": about.settings,
        "stop_reason": about.stop_reason,
        "best": best,
        "last": about.updates[-1],
        "validations": about.validations,
    }
    return html_page(f"Training run {about.name}", lead, [s for s in sections if s], data)


def _read(path: Path) -> _Run:
    run = RunDirectory.open(path)
    records = run.metrics()
    updates = [record for record in records if "elapsed_s" in record]
    if not updates:
        raise ConfigError(f"{path}: nothing has been learned yet; expected a run with an update")
    return _Run(
        path.resolve().name,
        read_json(path / "config.json"),
        read_json(path / "provenance.json") if (path / "provenance.json").is_file() else {},
        run.stop_reason,
        updates,
        [record for record in records if "validation_ratio" in record],
    )


def _best(about: _Run) -> dict[str, Any] | None:
    return min(about.validations, key=lambda record: record["validation_ratio"], default=None)


def _headline(about: _Run, best: dict[str, Any] | None) -> str:
    last = about.updates[-1]
    spent = f"{last['elapsed_s'] / 60:,.1f} minutes and {last['decisions']:,} decisions"
    if about.stop_reason is None:
        ended = f"So far {spent}; the run is under way, or was killed."
    else:
        why = REASONS.get(about.stop_reason, about.stop_reason)
        ended = f"It took {spent}, and ended because {why}."
    if best is None:
        return f"Nothing has been validated yet. {ended}"
    change = 100 * (best["validation_ratio"] - 1)
    against = 100 * (best["validation_to_heuristic"] - 1)
    return (
        f"In validation the policy's {about.figure} is {abs(change):.1f} % "
        f"{'lower' if change < 0 else 'higher'} than fair's, and {abs(against):.1f} % "
        f"{'lower' if against < 0 else 'higher'} than that of the best heuristic. {ended}"
    )


# --- sections


def _learning(about: _Run, drawn: Charts) -> str:
    minutes, at = about.minutes, about.validated_at()
    places = {"argmax": 0, "sampled": 1}
    validated = [
        Series(f"validation, {mode}", at, _floats(about.validations, f"validation_ratio_{mode}"), k)
        for mode, k in places.items()
    ]
    acted = _line("training, sampled", minutes, about.column("recent_ratio"), 7)
    to_fair = drawn.lines(
        "learning",
        f"{about.figure[0].upper()}{about.figure[1:]} relative to fair's",
        "Ratio to fair's on the same jobs over minutes of training; 1 is as good as fair. "
        + _ends(validated[0]),
        [*(series for series in validated if len(series.x)), acted],
        x="minutes",
        y="ratio, lower is better",
        level=1.0,
        top=1.25 * max(1.0, float(np.nanmax(validated[0].y, initial=1.0))),
    )
    to_heuristic = None
    if about.validations:
        ratio = Series("better mode", at, _floats(about.validations, "validation_to_heuristic"), 0)
        to_heuristic = drawn.lines(
            "learning-to-heuristic",
            "Relative to the best tuned heuristic's",
            "Ratio to the best heuristic's on the same validation jobs over minutes of training; 1 "
            "is as good. " + _ends(ratio),
            [ratio],
            x="minutes",
            y="ratio, lower is better",
            level=1.0,
            marks=True,
        )
    jct = drawn.lines(
        "training-jct",
        "Mean JCT while training",
        "Mean job completion time of the episodes that actors ended lately, and fair's on the same",
        [
            _line("policy", minutes, about.column("recent_jct_s"), 0),
            _line("fair, same jobs", minutes, about.column("recent_fair_jct_s"), 1),
        ],
        x="minutes",
        y="seconds",
        log_y=True,
    )
    return section(
        "What it learned",
        charts(to_fair, to_heuristic, jct),
        _source(
            "validation_ratio_argmax, validation_ratio_sampled, validation_to_heuristic (fixed job "
            "lists that are not trained on; the heuristic is the best there of 13), recent_ratio, "
            "recent_jct_s, recent_fair_jct_s; minutes are elapsed_s / 60"
        ),
    )


def _speed(about: _Run, drawn: Charts) -> str:
    names = {"decisions_per_s": "both at once", "acting_decisions_per_s": "acting, by itself",
             "learning_decisions_per_s": "learning, by itself"}  # fmt: skip
    speed = _over_time(about, drawn, "throughput", "Decisions per second", names, "decisions/s")
    idle = {"learner_idle_share": "learner", "actor_idle_share": "actors"}
    waiting = _over_time(about, drawn, "idle", "Share of the time spent waiting", idle, "share")
    return section("How fast", charts(speed, waiting), _source(", ".join((*names, *idle))))


def _correction(about: _Run, drawn: Charts) -> str:
    lag = {"lag_mean": "mean", "lag_max": "largest"}
    versions = _over_time(about, drawn, "lag", "Policy lag", lag, "versions")
    weights = _over_time(
        about, drawn, "importance", "Importance weights", {"importance_mean": "mean"}, "weight",
        zero=False,
    )  # fmt: skip
    clipped = _over_time(
        about, drawn, "clipped", "Importance weights that were cut",
        {"importance_clipped": "cut"}, "share",
    )  # fmt: skip
    return section(
        "How far from what acted",
        paragraph(
            "The lag is how many versions the learner was ahead of the parameters that acted; a "
            "weight is how much more probable an action is now than it was then."
        ),
        charts(versions, weights, clipped),
        _source("lag_mean, lag_max, importance_mean, importance_clipped"),
    )


def _steadiness(about: _Run, drawn: Charts) -> str:
    entropy = _over_time(
        about, drawn, "entropy", "Entropy of decisions", {"entropy": "entropy"}, "nats"
    )
    kl = _over_time(about, drawn, "kl", "Change of the policy in an update", {"kl": "KL"}, "nats")
    critic = _over_time(
        about, drawn, "critic", "What the critic explains",
        {"explained_variance": "explained variance"}, "share of the variance", zero=False,
    )  # fmt: skip
    return section(
        "How steadily",
        charts(entropy, kl, critic),
        _source("entropy, kl, explained_variance"),
    )


def _numbers(about: _Run) -> str:
    validated: list[list[Cell]] = [
        [
            number(record["step"], ",d"), number(minutes, ",.1f"),
            number(record["validation_ratio_argmax"], ".3f"),
            number(record["validation_ratio_sampled"], ".3f"),
            number(record["validation_to_heuristic"], ".3f"),
        ]
        for record, minutes in zip(about.validations, about.validated_at().tolist(), strict=True)
    ]  # fmt: skip
    few = np.unique(np.linspace(0, len(about.updates) - 1, _ROWS).astype(int)).tolist()
    updates: list[list[Cell]] = [
        [
            number(record["step"], ",d"), number(record["elapsed_s"] / 60, ",.1f"),
            *(number(record.get(name), form) for name, form in _COLUMNS.items()),
        ]
        for record in (about.updates[k] for k in few)
    ]  # fmt: skip
    return section(
        "In figures",
        table(
            ["update", "minutes", "argmax, to fair's", "sampled, to fair's", "to best heuristic's"],
            validated, f"From {_FROM}, a line for each validation.", words=0, name="validations",
        ) if validated else "",
        details(
            f"{len(few)} of {len(about.updates):,} updates",
            table(["update", "minutes", *_COLUMNS], updates, f"From {_FROM}, a line for each "
                  "update.", words=0, name="updates"),
        ),
    )  # fmt: skip


def _settings(about: _Run) -> str:
    learning = about.settings.get("learning", {})
    pairs = {name: value for name, value in about.settings.items() if name != "learning"} | learning
    made = about.provenance
    machine = ", ".join(
        str(made[name]) for name in ("processor", "platform", "started_utc") if name in made
    )
    if "cpus" in made:
        machine = f"{made['cpus']} cores, {machine}"
    items = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>"
        for name, value in pairs.items()
        if value is not None
    )
    return section(
        "Settings",
        paragraph(f"On {machine}." if machine else "", "quiet"),
        f"<dl>{items}</dl>",
        paragraph("From config.json and provenance.json.", "source"),
    )


# --- charts


def _over_time(
    about: _Run,
    drawn: Charts,
    name: str,
    title: str,
    columns: dict[str, str],
    y: str,
    *,
    zero: bool = True,
) -> Chart:
    series = [
        _line(label, about.minutes, about.column(column), k)
        for k, (column, label) in enumerate(columns.items())
    ]
    alt = f"{title} over minutes of training. " + " ".join(map(_ends, series))
    return drawn.lines(name, title, alt, series, x="minutes", y=y, zero=zero)


def _line(label: str, minutes: Floats, values: Floats, place: int) -> Series:
    there = np.isfinite(values)
    return Series(label, *thinned(minutes[there], values[there]), place)


def _ends(series: Series) -> str:
    """The first and the last value, in words."""
    if not len(series.y):
        return ""
    return f"{series.label}: from {series.y[0]:.4g} to {series.y[-1]:.4g}."


def _source(columns: str) -> str:
    return paragraph(
        f"From {_FROM}: {columns}. Of many updates, means of as many neighbours each.", "source"
    )


def _floats(records: Sequence[dict[str, Any]], name: str) -> Floats:
    return np.array([np.nan if r.get(name) is None else r[name] for r in records], np.float64)
