"""Charts as SVG inside a page, and as files of their own.

Matplotlib draws with the colours of the light theme. Inside a page each of them becomes the CSS
variable that it is the light value of, so that a chart follows the page's theme; its text stays
text, in the page's font. Widths are those of a telephone: two charts stand side by side on a desk.
"""

import io
import re
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

COLOURS = {
    "paper": ("#fdfdfc", "#16191d"),
    "ink": ("#1c2127", "#e7e9ec"),
    "quiet": ("#5b6470", "#a2abb6"),
    "line": ("#dcdfe3", "#353c45"),
    "series-0": ("#1f5fbf", "#7db0ff"),
    "series-1": ("#c2410c", "#ff9a62"),
    "series-2": ("#0f7b5f", "#4ccfa5"),
    "series-3": ("#8b3fa8", "#d59af0"),
    "series-4": ("#8a6a00", "#e3bf45"),
    "series-5": ("#b4235a", "#ff86b0"),
    "series-6": ("#3d7d93", "#84cbe2"),
    "series-7": ("#555c66", "#b9c0c9"),
}
"""CSS variables: the value in the light theme, which no two share, and in the dark one."""

_INK, _QUIET, _LINE, _PAPER = (COLOURS[name][0] for name in ("ink", "quiet", "line", "paper"))
_SERIES = [light for name, (light, _) in COLOURS.items() if name.startswith("series")]
_DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_MARKS = "osD^vPX*"
_WIDTH, _HEIGHT = 4.1, 2.75  # inches of 96 CSS pixels, drawn at the font size below
_DPI = 200
_MOST_POINTS = 240
_STYLE: Any = {  # Matplotlib types its keys one by one
    "axes.edgecolor": _LINE,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": _QUIET,
    "axes.labelsize": 8.5,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "figure.constrained_layout.use": True,
    "figure.facecolor": _PAPER,
    "font.size": 8.5,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.labelcolor": _INK,
    "lines.linewidth": 1.5,
    "svg.fonttype": "none",
    "text.color": _INK,
    "xtick.color": _LINE,
    "xtick.labelcolor": _QUIET,
    "xtick.labelsize": 8,
    "ytick.color": _LINE,
    "ytick.labelcolor": _QUIET,
    "ytick.labelsize": 8,
}


class Series(NamedTuple):
    """A line of a chart; `place` chooses its colour, the same one all over a page."""

    label: str
    x: Floats
    y: Floats
    place: int


class Chart(NamedTuple):
    """A drawn chart."""

    name: str
    """Of its file, without ending."""
    title: str
    alt: str
    """What it shows, for who cannot see it."""
    svg: str
    """For the page."""


class Charts:
    """Draws charts; also into files where a directory is named.

    Args:
        directory: of the files.
        progress: called with the title of each chart before it is drawn.

    Raises:
        MissingExtraError: there is no Matplotlib.
        ConfigError: a file cannot be written.
    """

    def __init__(
        self, directory: Path | None = None, progress: Callable[[str], None] | None = None
    ) -> None:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            raise MissingExtraError("A report", "report") from None
        self._directory, self._progress = directory, progress
        self.files: list[Path] = []

    def lines(
        self,
        name: str,
        title: str,
        alt: str,
        series: Sequence[Series],
        *,
        x: str,
        y: str,
        log_x: bool = False,
        log_y: bool = False,
        steps: bool = False,
        marks: bool = False,
        level: float | None = None,
        zero: bool = False,
        top: float | None = None,
    ) -> Chart:
        """Lines over a common axis. `level`: a thin line across; `zero`: the y axis begins at 0;
        `top`: it ends there, if lines go so high."""

        def draw(axes: "Axes") -> None:
            for one in series:
                axes.plot(
                    *(one.x, one.y),
                    color=colour(one.place),
                    linestyle=_DASHES[one.place % len(_DASHES)],
                    marker=_MARKS[one.place % len(_MARKS)] if marks else None,
                    markersize=4,
                    drawstyle="steps-post" if steps else "default",
                    label=_short(one.label),
                )
            if level is not None:
                axes.axhline(level, color=_QUIET, linewidth=0.8)
            if log_x:
                axes.set_xscale("log")
            if log_y:
                axes.set_yscale("log")
            if zero:
                axes.set_ylim(bottom=0)
            if top is not None and axes.get_ylim()[1] > top:
                least = min(float(one.y.min(initial=top)) for one in series)
                axes.set_ylim(least - 0.05 * (top - least), top)
            _axes(axes, x, y)

        return self._chart(name, title, alt, draw, legend=len(series) > 1)

    def dots(
        self,
        name: str,
        title: str,
        alt: str,
        classes: Sequence[str],
        series: Sequence[tuple[str, Floats, int]],
        *,
        x: str,
        y: str,
    ) -> Chart:
        """Values (label, of each class, place) by class, on a logarithmic axis."""

        def draw(axes: "Axes") -> None:
            spread = 0.6 / max(len(series), 1)
            for k, (label, values, place) in enumerate(series):
                at = np.arange(len(classes)) + (k - (len(series) - 1) / 2) * spread
                axes.plot(
                    *(at, values),
                    color=colour(place),
                    linestyle="none",
                    marker=_MARKS[place % len(_MARKS)],
                    markersize=5,
                    label=_short(label),
                )
            axes.set_yscale("log")
            axes.set_xticks(range(len(classes)), classes)
            axes.set_xlim(-0.5, len(classes) - 0.5)
            axes.grid(False, axis="x")
            for between in range(len(classes) - 1):
                axes.axvline(between + 0.5, color=_LINE, linewidth=0.6)
            _axes(axes, x, y)

        return self._chart(name, title, alt, draw, legend=len(series) > 1)

    def intervals(
        self,
        name: str,
        title: str,
        alt: str,
        rows: Sequence[tuple[str, float, tuple[float, float] | None, tuple[float, float] | None]],
        places: Sequence[int],
        *,
        x: str,
    ) -> Chart:
        """Ratios (label, ratio, interval, wider interval), one row each; 1 is marked."""

        def draw(axes: "Axes") -> None:
            for k, ((_, ratio, narrow, wide), place) in enumerate(zip(rows, places, strict=True)):
                for bounds, width in ((wide, 1.0), (narrow, 3.0)):
                    if bounds is not None:
                        axes.plot(bounds, (k, k), color=colour(place), linewidth=width)
                axes.plot(ratio, k, color=colour(place), marker="o", markersize=6)
            axes.axvline(1, color=_QUIET, linewidth=0.8)
            axes.set_yticks(range(len(rows)), [_short(row[0]) for row in rows])
            axes.tick_params(axis="y", labelcolor=_INK)
            axes.set_ylim(len(rows) - 0.5, -0.5)
            axes.grid(False, axis="y")
            _axes(axes, x, "")

        return self._chart(name, title, alt, draw, legend=False, height=0.9 + 0.3 * len(rows))

    def bars(
        self,
        name: str,
        title: str,
        alt: str,
        labels: Sequence[str],
        values: Sequence[float],
        *,
        x: str,
        y: str,
        every: int = 1,
    ) -> Chart:
        """Upright bars, of which every so many is named."""

        def draw(axes: "Axes") -> None:
            axes.bar(range(len(values)), values, width=0.86, color=colour(0))
            shown = range(0, len(labels), every)
            axes.set_xticks(shown, [labels[k] for k in shown])
            axes.grid(False, axis="x")
            _axes(axes, x, y)

        return self._chart(name, title, alt, draw, legend=False)

    def histogram(
        self, name: str, title: str, alt: str, edges: Floats, counts: Sequence[int], *, x: str,
        y: str, log: bool,
    ) -> Chart:  # fmt: skip
        """Counts between edges."""

        def draw(axes: "Axes") -> None:
            axes.stairs(counts, edges, fill=True, color=colour(0))
            if log:
                axes.set_xscale("log")
            _axes(axes, x, y)

        return self._chart(name, title, alt, draw, legend=False)

    def graph(
        self,
        name: str,
        title: str,
        alt: str,
        nodes: Sequence[tuple[float, float, int]],
        edges: Sequence[tuple[tuple[float, float], tuple[float, float]]],
    ) -> Chart:
        """Nodes (x, y, tasks) and lines between places."""

        def draw(axes: "Axes") -> None:
            for one, other in edges:
                axes.plot(*zip(one, other, strict=True), color=_QUIET, linewidth=0.8, zorder=1)
            x, y, tasks = (np.array(values, np.float64) for values in zip(*nodes, strict=True))
            axes.scatter(x, y, s=18 + 14 * np.log2(tasks), color=colour(0), zorder=2)
            axes.margins(0.12)
            axes.axis("off")
            axes.set_title("a circle grows with the tasks of its stage", loc="left", color=_QUIET,
                           fontsize=8.5)  # fmt: skip

        return self._chart(name, title, alt, draw, legend=False)

    def save_png(
        self, name: str, draw: "Callable[[Figure], None]", size: tuple[float, float]
    ) -> None:
        """A picture that only makes sense as pixels; only where files are wanted."""
        if self._directory is None:
            return
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        with rc_context(_STYLE):
            figure = Figure(size)
            draw(figure)
            self._write(figure, name, "png")

    def _chart(
        self,
        name: str,
        title: str,
        alt: str,
        draw: "Callable[[Axes], None]",
        *,
        legend: bool,
        height: float = _HEIGHT,
    ) -> Chart:
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        if self._progress is not None:
            self._progress(title)
        # The salt makes ids differ from chart to chart, and not from run to run.
        with rc_context(_STYLE | {"svg.hashsalt": name}):
            figure = Figure((_WIDTH, height))
            axes = figure.subplots()
            draw(axes)
            if legend:
                labels = len(axes.get_legend_handles_labels()[1])
                columns = 1 if labels > 6 else 2
                figure.legend(
                    loc="outside lower left", ncols=columns, handlelength=2.2, columnspacing=1.2
                )
                figure.set_figheight(height + 0.16 * -(-labels // columns))
            file = io.StringIO()
            nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
            figure.savefig(file, format="svg", metadata=nothing, transparent=True)
            if self._directory is not None:
                self._write(figure, name, "svg")
                self._write(figure, name, "png")
        return Chart(name, title, alt, _inline(file.getvalue(), alt))

    def _write(self, figure: "Figure", name: str, kind: str) -> None:
        from ganger.errors import ConfigError

        assert self._directory is not None
        path = self._directory / f"{name}.{kind}"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=_DPI, metadata={"Date": None} if kind == "svg" else None)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
        self.files.append(path)


def colour(place: int) -> str:
    """Of a series, in the light theme."""
    return _SERIES[place % len(_SERIES)]


def thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """At most some hundred points of a line: means of as many neighbours each, in both axes."""
    if len(x) <= _MOST_POINTS:
        return x, y
    edges = np.linspace(0, len(x), _MOST_POINTS + 1).astype(int)
    parts = list(pairwise(edges.tolist()))
    means = [[float(values[a:b].mean()) for a, b in parts] for values in (x, y)]
    return np.array(means[0]), np.array(means[1])


def _axes(axes: Any, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_title(y, loc="left", color=_QUIET, fontsize=8.5)  # reads level, unlike a y label
    axes.tick_params(length=2.5)
    axes.set_axisbelow(True)
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            _ticks(axis)


def _ticks(axis: Any) -> None:
    """Plain figures on a logarithmic axis, and enough of them to read it."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = sorted(axis.get_view_interval())
    decades = float(np.log10(max(high, 1e-300) / max(low, 1e-300)))
    few = (1.0,) if decades > 2.5 else (1.0, 3.0) if decades > 1.2 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=few))
    axis.set_major_formatter(_plain_figure)
    axis.set_minor_formatter(NullFormatter())


def _plain_figure(value: float, _: int) -> str:
    for unit, name in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= unit:
            return f"{value / (1e3 if unit == 1e4 else unit):,.0f}{name}"
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _short(label: str) -> str:
    return label if len(label) <= 32 else label[:31] + "…"


def _inline(svg: str, alt: str) -> str:
    """An SVG document as an element of a page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    variable = {light: f"var(--{name})" for name, (light, _) in COLOURS.items()}
    svg = re.sub(r"#[0-9a-f]{6}\b", lambda found: variable.get(found[0], found[0]), svg)
    svg = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--sans)", svg)
    # Ids that nothing refers to would only clash with those of the next chart.
    used = set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    head, _, rest = svg.partition(">")
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    return (
        f'<svg {box[0]} role="img" aria-label="{escape(alt)}" xmlns="http://www.w3.org/2000/svg" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink">{rest.strip()}'
    )
