"""The command line: parse, call, print.

Results go to standard output, with --json as one JSON object; progress and notices go to standard
error. Heavy modules are imported by the commands that need them, so that `ganger --help` is quick.
"""

import contextlib
import importlib.util
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

import msgspec
import tyro
from tyro.conf import arg

import ganger
from ganger.config import Config, read_toml
from ganger.errors import CheckpointError, ConfigError, GangerError, MissingExtraError
from ganger.training.config import TrainConfig

if TYPE_CHECKING:
    from ganger.simulator.simulate import CompiledScheduler, Result
    from ganger.workload import JobSource, Workload

_PLAIN_LINE_S = 10.0  # between two lines of progress where there is no terminal
_DEFAULTS = TrainConfig()

_Interarrival = arg(name="interarrival", metavar="S")
_MoveDelay = arg(name="move-delay", metavar="S")


class Simulate(Config, frozen=True, kw_only=True):
    """Run a workload on a simulated cluster under one scheduler."""

    workload: str = "synthetic"
    """What arrives: synthetic, tpch:DIR or a .jobs.jsonl file, which is run as it is unless --jobs
    asks for random jobs of it."""
    job_list: Path | None = None
    """A file of [arrival_ms, size, query] entries; for tpch:DIR."""
    jobs: int | None = None
    """Jobs to draw at random; 50 unless given."""
    interarrival_s: Annotated[float | None, _Interarrival] = None
    """Mean seconds between two arrivals of random jobs; 25 unless given."""
    executors: int = _DEFAULTS.executors
    """Task slots of the cluster."""
    move_delay_s: Annotated[float, _MoveDelay] = _DEFAULTS.move_delay_s
    """Seconds an executor needs to change jobs."""
    scheduler: str = "fair"
    """A heuristic such as fair or srpt:cap=sqrt,c=1, or the path of a training run."""
    sample: bool = False
    """Let a learned scheduler draw its actions instead of taking the most probable ones."""
    seed: int = 0
    """Of the random jobs and of the task durations."""
    timeline: Path | None = None
    """Write which executor ran which task when to this CSV file."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        from ganger.simulator.simulate import Cluster, simulate

        cluster = Cluster(executors=self.executors, move_delay_s=self.move_delay_s)
        scheduler = self._scheduler()
        workload = self._workload()
        with _compile_notice():
            result = simulate(
                cluster,
                workload,
                scheduler,
                seed=self.seed,
                timeline=self.timeline is not None,
            )
        if self.timeline is not None:
            _write_timeline(self.timeline, workload, result)
        about = {
            "workload": self.workload,
            "executors": self.executors,
            "scheduler": str(scheduler),
            "seed": self.seed,
        }
        if self.json:
            _print_json(about | result.summary())
        else:
            _print_table(("", ""), list((about | result.summary()).items()))

    def _scheduler(self) -> "CompiledScheduler":
        from ganger.policy.checkpoint import load_policy
        from ganger.schedulers import SCHEDULERS, parse_scheduler

        name = self.scheduler.partition(":")[0].strip()
        if name not in SCHEDULERS and (os.sep in self.scheduler or Path(self.scheduler).exists()):
            return load_policy(self.scheduler, sample=self.sample)
        if self.sample:
            raise ConfigError(f"--sample is for learned schedulers; {self.scheduler} is none")
        return parse_scheduler(self.scheduler)

    def _workload(self) -> "Workload":
        from ganger.workload import FileSource, job_list_workload, load_source, random_workload

        source = load_source(self.workload)
        drawn = self.jobs is not None or self.interarrival_s is not None
        if self.job_list is not None:
            if drawn:
                raise ConfigError("--job-list says which jobs arrive when; leave out --jobs and "
                                  "--interarrival")
            return job_list_workload(source, self.job_list)
        if isinstance(source, FileSource) and self.jobs is None:
            if drawn:
                raise ConfigError("--interarrival is for random jobs; say how many with --jobs")
            return source.workload()
        return random_workload(
            source,
            jobs=_DEFAULTS.jobs if self.jobs is None else self.jobs,
            interarrival_s=(
                _DEFAULTS.interarrival_s if self.interarrival_s is None else self.interarrival_s
            ),
            seed=self.seed,
        )


class Train(TrainConfig, frozen=True, kw_only=True):
    """Train a scheduler: actors act in simulated clusters, a learner learns from them.

    Ctrl-C ends it within seconds, with a checkpoint; a second one ends it at once.
    """

    interarrival_s: Annotated[float, _Interarrival] = _DEFAULTS.interarrival_s
    move_delay_s: Annotated[float, _MoveDelay] = _DEFAULTS.move_delay_s
    run_dir: Path | None = None
    """A new directory for settings, metrics and checkpoints; runs/DATE-TIME unless given."""
    config: Path | None = None
    """A TOML file of settings, named as in a run's config.json; flags go before it."""

    def run(self) -> None:
        _need_torch("ganger train")
        from ganger.training.loop import train

        settings = self._settings()
        run_dir = self.run_dir or Path("runs") / datetime.now().strftime("%Y%m%d-%H%M%S")
        with _compile_notice():
            _compile_training(settings.messages)
        with _stop_on_signals() as stop, _Progress("training") as bar:

            def progress(metrics: dict[str, Any]) -> None:
                bar.update(metrics["elapsed_s"], settings.minutes * 60, _training_line(metrics))

            outcome = train(settings, run_dir, progress=progress, stop=stop)
        why = {"time": "the time is up", "stopped": "asked to stop"}.get(outcome.reason)
        print(
            f"{outcome.updates} updates from {outcome.decisions:,} decisions; "
            f"ended: {why or outcome.reason}.\n"
            f"Run:   {outcome.run}\n"
            f"Next:  ganger evaluate {_quoted(outcome.run)}"
        )

    def _settings(self) -> TrainConfig:
        return TrainConfig(**{name: getattr(self, name) for name in _TRAIN_FIELDS})


_TRAIN_FIELDS = TrainConfig.__struct_fields__


class Evaluate(Config, frozen=True, kw_only=True):
    """Compare a learned scheduler with heuristics on jobs that training never saw.

    All run on the same job lists with the same task durations. ratio_to_fair is the mean over lists
    of the ratio of mean job completion times to plain fair's; below 1 is better.
    """

    run_directory: Annotated[Path, tyro.conf.Positional, arg(name="RUN", metavar="RUN")]
    """A run directory of `ganger train`, or one of its checkpoints."""
    workload: str | None = None
    """Where jobs are drawn from; as in training unless given."""
    against: str = "fair,fifo,kshortest,srpt:cap=sqrt"
    """Heuristics to compare with, as in fair,srpt:cap=sqrt,c=1."""
    episodes: int = 200
    """Job lists."""
    seed: int = 0
    """Of the job lists and of the task durations."""
    executors: int | None = None
    """Task slots of the cluster; as in training unless given."""
    jobs: int | None = None
    """Jobs in a list; as in training unless given."""
    interarrival_s: Annotated[float | None, _Interarrival] = None
    """Mean seconds between two arrivals; as in training unless given."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        from ganger.evaluation import Contender, evaluate
        from ganger.policy.checkpoint import read_policy
        from ganger.schedulers import parse_schedulers
        from ganger.workload import load_source

        policy = read_policy(self.run_directory)
        contenders = [
            Contender(policy.scheduler(), "learned", "argmax"),
            Contender(policy.scheduler(sample=True), "learned", "sampled"),
            *(Contender(heuristic, str(heuristic)) for heuristic in parse_schedulers(self.against)),
        ]
        settings = msgspec.to_builtins(policy.trained_on)
        for name in ("workload", "executors", "jobs", "interarrival_s"):
            if (given := getattr(self, name)) is not None:
                settings[name] = given
        source = load_source(settings["workload"])
        with _compile_notice():
            _compile_policy(policy.messages)
        with _Progress("evaluating") as bar:
            rows = evaluate(
                source,
                contenders,
                executors=settings["executors"],
                jobs=settings["jobs"],
                interarrival_s=settings["interarrival_s"],
                move_delay_s=settings["move_delay_s"],
                episodes=self.episodes,
                seed=self.seed,
                progress=lambda done, of: bar.update(done, of, f"{done} of {of} episodes"),
            )
        if self.json:
            about = {"run": str(self.run_directory), "checkpoint_step": policy.step} | settings
            about |= {"episodes": self.episodes, "seed": self.seed}
            _print_json(about | {"rows": msgspec.to_builtins(rows)})
            return
        print(
            f"{self.episodes} unseen lists of {settings['jobs']} jobs, one in "
            f"{settings['interarrival_s']:g} s, on {settings['executors']} executors "
            f"({settings['workload']}, seed {self.seed})\n"
        )
        _print_rows([(row.scheduler, row) for row in rows])


class Tune(Config, frozen=True, kw_only=True):
    """Find the best heuristic for a workload and cluster: the bar for a learned scheduler.

    Parameters are chosen on training lists; the figures are of held-out lists.
    """

    workload: str = "synthetic"
    """Where jobs are drawn from."""
    executors: int = _DEFAULTS.executors
    """Task slots of the cluster."""
    jobs: int = _DEFAULTS.jobs
    """Jobs in a list."""
    interarrival_s: Annotated[float, _Interarrival] = _DEFAULTS.interarrival_s
    """Mean seconds between two arrivals."""
    move_delay_s: Annotated[float, _MoveDelay] = _DEFAULTS.move_delay_s
    """Seconds an executor needs to change jobs."""
    episodes: int = 64
    """Job lists in the last round of the search, and held-out lists."""
    seed: int = 0
    """Of the job lists and of the task durations."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        from ganger.evaluation import tune
        from ganger.workload import load_source

        source = load_source(self.workload)
        with _compile_notice():
            _compile_heuristics()
        with _Progress("tuning") as bar:
            report = tune(
                source,
                executors=self.executors,
                jobs=self.jobs,
                interarrival_s=self.interarrival_s,
                move_delay_s=self.move_delay_s,
                episodes=self.episodes,
                seed=self.seed,
                progress=lambda what, done, of: bar.update(done, of, what),
            )
        if self.json:
            settings = {name: getattr(self, name) for name in self.__struct_fields__}
            settings.pop("json")
            _print_json(settings | msgspec.to_builtins(report))
            return
        _print_rows([(entry.scheduler, entry.held_out) for entry in report.families])
        print(f"\nBest: {report.best}")


class Warmup(Config, frozen=True, kw_only=True):
    """Compile everything ahead, so that nothing else waits for it."""

    def run(self) -> None:
        steps = [
            ("simulator and heuristics", _compile_heuristics),
            ("schedulers written in Python", _compile_protocol),
            ("policy", lambda: _compile_policy(messages=False)),
        ]
        if importlib.util.find_spec("torch"):
            steps.append(("training", lambda: _compile_training(messages=False)))
        begin = time.perf_counter()
        with _compile_notice():
            for what, compile_it in steps:
                step_begin = time.perf_counter()
                print(f"{what:30}", end="", flush=True)
                compile_it()
                print(f"{time.perf_counter() - step_begin:6.1f} s")
        print(f"{'all':30}{time.perf_counter() - begin:6.1f} s")
        directory, kept = _cache()
        print(f"Kept in {directory}" if kept else f"Not kept: {_cache_home()} cannot be written")


class Benchmark(Config, frozen=True, kw_only=True):
    """Measure simulating, acting, learning and training on this machine, about a minute.

    Leave the machine alone meanwhile: the figures are medians, but not of a busy one.
    """

    workload: str = "synthetic"
    """Where jobs are drawn from."""
    seed: int = 0
    """Of everything random."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        from ganger.benchmark import benchmark

        with _compile_notice():
            _compile_policy(messages=False)
            if importlib.util.find_spec("torch"):
                _compile_training(messages=False)
        with _Progress("measuring") as bar:
            figures = benchmark(self.workload, seed=self.seed, progress=bar.update)
        if self.json:
            _print_json(figures)
        else:
            machine = figures.pop("machine")
            _print_table(("", ""), list(figures.items()))
            print(f"\n{machine['processor']}, {machine['cpus']} cores, Python {machine['python']}")


class Version(Config, frozen=True, kw_only=True):
    """Print the version."""

    def run(self) -> None:
        print(f"ganger {ganger.__version__}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        given = ["version"]
    try:
        _parse(given).run()
        sys.stdout.flush()
    except GangerError as error:
        print(f"ganger: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ganger: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read our output has seen enough; nor may closing it at exit fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return 0


def _parse(given: list[str]) -> Any:
    commands = {
        "simulate": (Simulate, None),
        "train": (Train, _train_defaults(given)),
        "evaluate": (Evaluate, None),
        "tune": (Tune, None),
        "warmup": (Warmup, None),
        "benchmark": (Benchmark, None),
        "version": (Version, None),
    }
    annotated = []
    for name, (command, default) in commands.items():
        how = {} if default is None else {"default": default}
        annotated.append(Annotated[command, tyro.conf.subcommand(name, **how)])
    return tyro.cli(
        Union[tuple(annotated)],  # noqa: UP007  # made of a list
        prog="ganger",
        description=ganger.__doc__,
        args=given,
        config=(tyro.conf.FlagCreatePairsOff,),
    )


def _train_defaults(given: list[str]) -> Train | None:
    """What `ganger train --config FILE` starts from, so that other flags change single settings."""
    if given[:1] != ["train"]:
        return None
    for at, word in enumerate(given):
        name, equals, path = word.partition("=")
        if name == "--config" and (equals or at + 1 < len(given)):
            settings = read_toml(path if equals else given[at + 1], TrainConfig)
            return Train(**{name: getattr(settings, name) for name in _TRAIN_FIELDS})
    return None


# --- compiling


def _compile_heuristics() -> None:
    from ganger.evaluation import evaluate
    from ganger.schedulers import parse_scheduler
    from ganger.workload import load_source

    few = {"executors": 2, "jobs": 1, "interarrival_s": 1.0, "episodes": 1, "seed": 0}
    evaluate(load_source("synthetic"), [parse_scheduler("fair")], **few)
