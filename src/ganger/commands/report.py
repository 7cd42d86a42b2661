"""`ganger report`: a comparison, a training run or a workload as one HTML page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import arg

from ganger.commands.terminal import Progress, optional, print_json


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write one HTML page about a comparison, a training run or a workload: which of them it is,
    is found out.

    The page is one file that needs no network. Under its tables stands where figures are from.
    """

    path: Annotated[str, tyro.conf.Positional, arg(name="PATH", metavar="PATH")]
    """A directory of `ganger compare` or of `ganger train`, or what `ganger inspect` takes."""
    out: Annotated[Path | None, optional("FILE.html")] = None
    """The page; unless given, report.html in that directory, or here for a workload."""
    images: Annotated[Path | None, optional("DIR")] = None
    """Also write each chart there, as SVG and PNG."""
    executors: Annotated[int | None, optional("N")] = None
    """Of a workload: task slots of the cluster; as many as the log says, unless given."""
    json: bool = False
    """Print one JSON object: what was written."""

    def run(self) -> None:
        from ganger.report import write_report

        with Progress("drawing") as bar:
            written = write_report(
                self.path,
                self.out,
                self.images,
                self.executors,
                lambda what: bar.update(0, 1, what),
            )
        if self.json:
            print_json({
                "kind": written.kind, "out": str(written.out), "bytes": written.size_bytes,
                "images": [str(file) for file in written.images],
            })  # fmt: skip
            return
        print(f"{written.out}: {written.size}, about a {written.kind}")
        if written.images:
            print(f"{len(written.images)} pictures in {self.images}")
