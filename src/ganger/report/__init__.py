"""Pages that a person can look at: a comparison, a training run or a workload as one HTML file.

`write_report` finds out which of the three a path is; `comparison`, `training` and `workload` hold
a page each, and are what there is to read about what a page says and where its figures are from.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ganger.errors import ConfigError
from ganger.report.page import size_in_words

__all__ = ["Written", "write_report"]


class Written(NamedTuple):
    """What was written."""

    kind: str
    """comparison, training run or workload."""
    out: Path
    size_bytes: int
    images: list[Path]

    @property
    def size(self) -> str:
        return size_in_words(self.size_bytes)


def kind_of(path: Path) -> str:
    """What a path is: comparison, training run or workload.

    Raises:
        ConfigError: a directory of neither a comparison that has ended nor a run.
    """
    from ganger.evaluation.job_rows import SETTINGS, SUMMARY

    if (path / SUMMARY).is_file():
        return "comparison"
    if (path / SETTINGS).is_file() and (path / "parts").is_dir():
        raise ConfigError(f"{path}: this comparison has not ended; run its `ganger compare` again")
    if (path / "config.json").is_file():
        return "training run"
    return "workload"


def write_report(
    spec: str,
    out: Path | None = None,
    images: Path | None = None,
    executors: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Written:
    """Write the page about a path.

    Args:
        spec: a directory of `ganger compare` or of `ganger train`, or a workload.
        out: the file; report.html in that directory, or here for a workload, unless given.
        images: a directory for the charts as SVG and PNG.
        executors: of the cluster that a workload is inspected for.
        progress: called with what is being drawn.

    Raises:
        ConfigError: it is none of these, or something cannot be written.
        WorkloadError: it is none that a workload can be read from.
        MissingExtraError: there is no Matplotlib, or no pyarrow for a comparison.
    """
    from ganger.report.drawing import Charts

    charts, path = Charts(images, progress), Path(spec)
    kind = kind_of(path)
    if executors is not None and kind != "workload":
        raise ConfigError(f"--executors is for a workload; {spec} is a {kind}")
    if kind == "comparison":
        from ganger.report.comparison import comparison_page

        page = comparison_page(path, charts)
    elif kind == "training run":
        from ganger.report.training import training_page

        page = training_page(path, charts)
    else:
        from ganger.report.workload import workload_page

        page = workload_page(spec, charts, executors)
    out = out or (Path() if kind == "workload" else path) / "report.html"
    encoded = page.encode()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(encoded)
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written: {error.strerror}") from None
    return Written(kind, out, len(encoded), charts.files)
