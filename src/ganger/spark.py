"""For a Spark application whose jobs Ganger is to schedule; it needs PySpark, and nothing beside.

builder = SparkSession.builder.config(map=ganger.spark.pools("fairscheduler.xml"))
spark = builder.getOrCreate()
with ganger.spark.driving(spark, scheduler="general"):
    ...
    with ganger.spark.pool(spark, "report-17", kind="report"):  # in any thread
        frame.collect()
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ganger.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from ganger.serving.guard import GuardConfig
    from ganger.serving.spark.driver import SparkDriver

__all__ = ["driving", "pool", "pools"]

logger = logging.getLogger("ganger.spark")

_drivers: "dict[str, SparkDriver]" = {}
"""By application; there is one in a process, or none."""


def pools(path: str | os.PathLike[str]) -> dict[str, str]:
    """Write the file of FAIR pools that jobs are put into; the settings that make Spark read it.

    The application must be started with these settings. Jobs that are not marked are in the pool
    `default`, first come, first served, as without this file.

    Raises:
        ConfigError: the file cannot be written.
    """
    from ganger.serving.spark.pools import write_pools

    try:
        return write_pools(Path(path))
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)}: cannot be written: {error.strerror}") from None


@contextmanager
def driving(
    spark: Any,
    scheduler: str = "general",
    *,
    sample: bool = False,
    shadow: bool = False,
    record: str | os.PathLike[str] | None = None,
    executors: int | None = None,
    prior_s: float = 1.0,
    status_port: int | None = None,
    guard: "GuardConfig | None" = None,
) -> "Iterator[SparkDriver]":
    """Have a scheduler decide which of the marked jobs go first, while inside.

    Args:
        spark: a SparkSession or a SparkContext, of the classic kind (not Spark Connect).
        scheduler: as for `ganger drive`: the path of a run or checkpoint, `general`, a heuristic,
            or a file made by `ganger promote`.
        sample: let a policy draw its actions instead of taking the most probable ones.
        shadow: decide and record, but change nothing.
        record: directory for decisions, jobs and what is learned of durations; None: keep nothing.
        executors: task slots of the application; None: what Spark says it has,
            `defaultParallelism`, which `spark.default.parallelism` overrides.
        prior_s: how long a task is thought to take while nothing at all is known.
        status_port: serve metrics and a status page there, on loopback (extra `serve`); 0: any.
        guard: deadline, fallback and breaker.

    Yields:
        The driver; its `counts` say what happened.

    Raises:
        GangerError: the application cannot be driven, or there is no such scheduler.
    """
    from ganger.serving.commands import guarded
    from ganger.serving.estimates import Estimates
    from ganger.serving.guard import GuardConfig
    from ganger.serving.process import Setting
    from ganger.serving.records import Records
    from ganger.serving.spark.book import Shapes
    from ganger.serving.spark.driver import SparkDriver

    context = _context(spark)
    application = context.applicationId
    if application in _drivers:
        raise ConfigError("this application is driven already")
    config = guard or GuardConfig()
    directory = None if record is None else Path(record)
    records = Records(directory)
    estimates = Estimates(prior_s, directory and directory / "estimates.json")
    shapes = Shapes(directory and directory / "shapes.json")
    with ExitStack() as stack:
        stack.callback(records.close)
        decider = stack.enter_context(guarded(Setting(scheduler, sample), config, logger.info))
        metrics = None
        if status_port is not None:
            about = {
                "scheduler": scheduler,
                "fallback": config.fallback,
                "application": application,
            }
            metrics = stack.enter_context(_status(status_port, about))
        driver = SparkDriver(
            context,
            decider,
            estimates,
            shapes,
            records,
            metrics,
            shadow=shadow,
            executors=executors,
            say=logger.warning,
        )
        stack.callback(driver.close)
        _drivers[application] = driver
        stack.callback(_drivers.pop, application)
        yield driver


def pool(
    spark: Any, name: str, *, kind: str = "", stages: Sequence[int] = ()
) -> AbstractContextManager[None]:
    """Mark the actions inside as one job: it waits for its turn, and goes into the pool it gets.

    It concerns this thread, and threads of `pyspark.InheritableThread` that it starts. Where nobody
    drives the application nothing is done.

    Args:
        spark: a SparkSession or a SparkContext.
        name: of this job.
        kind: jobs of one kind are alike: the tasks and durations of their stages are remembered
            together. By default a name is a kind.
        stages: how many tasks its stages have, in order, where you know: (40, 8). Without it, what
            the last job of the kind had.
    """
    driver = _drivers.get(_context(spark).applicationId)
    return nullcontext() if driver is None else driver.job(name, kind, tuple(stages))


def _context(spark: Any) -> Any:
    """The SparkContext."""
    try:
        import pyspark
    except ImportError:
        raise MissingExtraError("ganger.spark", "spark-driver") from None
    if isinstance(spark, pyspark.SparkContext):
        found = spark
    else:
        try:
            found = spark.sparkContext
        except Exception:  # Spark Connect's sessions raise an error of their own
            found = None
    if not isinstance(found, pyspark.SparkContext):
        raise ConfigError(
            f"{type(spark).__module__}.{type(spark).__name__} has no SparkContext in this process; "
            f"expected a SparkSession or SparkContext, not one of Spark Connect"
        )
    if not hasattr(found, "addJobTag"):
        raise ConfigError(f"this is Spark {pyspark.__version__}; expected 3.5 or newer")
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        raise ConfigError("PYSPARK_PIN_THREAD is off: threads would share their pools; leave it on")
    return found


@contextmanager
def _status(port: int, about: dict[str, Any]) -> Iterator[Any]:
    from ganger.serving.metrics import Metrics
    from ganger.serving.service import ServiceConfig, pages
    from ganger.serving.web import WebServer

    metrics, config = Metrics(), ServiceConfig(port=port)
    with WebServer(pages(metrics, None, about, config), config.host, config.port) as server:
        logger.info("status and metrics at %s/", server.url)
        yield metrics
