"""For users of a Dask cluster that Ganger drives.

    with ganger.dask.job("report-17", kind="report"):
        client.compute(report)

In the scheduler: `dask scheduler --preload ganger.dask`. Needs the extra `dask`.
"""

from contextlib import AbstractContextManager
from typing import Any

from ganger.errors import MissingExtraError

__all__ = ["job"]


def job(name: str, kind: str = "") -> AbstractContextManager[Any]:
    """Mark all that is submitted inside as one job.

    Args:
        name: of this job; what is submitted under one name is one job.
        kind: jobs of one kind are alike: durations of their stages are remembered together.
    """
    try:
        import dask
    except ImportError:
        raise MissingExtraError("ganger.dask", "dask") from None
    annotation: AbstractContextManager[Any] = dask.annotate(  # type: ignore[attr-defined]
        job=name, ganger_kind=kind
    )
    return annotation


async def dask_setup(scheduler: Any) -> None:
    """Called by `dask scheduler --preload ganger.dask`."""
    from ganger.serving.dask.plugin import setup

    await setup(scheduler)
