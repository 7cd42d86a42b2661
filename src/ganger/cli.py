"""The command line: parse, call, print.

Results go to standard output, with --json as one JSON object; progress and notices go to standard
error. Heavy modules are imported by the commands that need them, so that `ganger --help` is quick.
"""

import atexit
import csv
import gc
import importlib.util
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, Union

import msgspec
import tyro
from tyro.conf import arg, subcommand

import ganger
from ganger.commands.compare import Compare
from ganger.commands.explain import Explain
from ganger.commands.report import Report
from ganger.commands.terminal import (
    Progress,
    count,
    figure,
    optional,
    print_json,
    print_table,
)
from ganger.commands.workloads import (
    arrivals_in_words,
    check_lists,
    fitting,
    list_jobs,
    load,
    places,
    recorded,
    say_which,
    to_run,
)
from ganger.config import read_toml
from ganger.errors import ConfigError, GangerError, MissingExtraError
from ganger.serving.commands import Drive, Promote, Serve
from ganger.training.config import EXECUTORS, OWN_FIGURES, REASONS, TrainConfig

if TYPE_CHECKING:
    from ganger.evaluation import Row
    from ganger.simulator.cluster import Cluster
    from ganger.simulator.simulate import Result
    from ganger.workload import Split as SplitName
    from ganger.workload import Workload
    from ganger.workload.inspection import Distribution, Inspection

_DEFAULTS = TrainConfig()
_SHARING = "fair,fifo,fair:source=capped,kshortest,srpt:cap=sqrt"
_BATCH = "fcfs,fcfs:backfill=easy,sjf:backfill=easy,f1:backfill=easy"

_MoveDelay = arg(name="move-delay", metavar="S")


@dataclass(frozen=True, kw_only=True)
class Simulate:
    """Run a workload on a simulated cluster under one scheduler."""

    workload: str = "synthetic"
    """What arrives: synthetic, tpch:DIR, or files, which are run as they are."""
    job_list: Annotated[Path | None, optional("FILE")] = None
    """A file of [arrival_ms, size, query] entries; for tpch:DIR."""
    jobs: Annotated[int | None, optional("N")] = None
    """Only the first N jobs of a file; else jobs to draw at random, 50 unless given."""
    interarrival_s: Annotated[float | None, optional("S", "interarrival")] = None
    """Mean seconds between two arrivals of random jobs, 25 unless given; of a file, too, if it is
    given."""
    executors: int = EXECUTORS
    """Task slots of the cluster."""
    classes: Annotated[tuple[str, ...], arg(metavar="[NAME:COUNT:cores=C,memory=M ...]")] = ()
    """Executors of several sizes instead; a stage runs on those that meet its demand."""
    move_delay_s: Annotated[float, _MoveDelay] = _DEFAULTS.move_delay_s
    """Seconds an executor needs to change jobs."""
    reconsider: bool = False
    """After jobs arrived, offer executors again that end a task, as the Dask driver does; else they
    stay with their stage while it has tasks."""
    work_conserving: bool = False
    """Let no executor wait for a stage that cannot start yet, as the Dask driver does."""
    scheduler: str = "fair"
    """A heuristic such as fair or srpt:cap=sqrt,c=1; the path of a training run; general, the
    policy that comes with Ganger; or replay: what the workload's log says really happened."""
    sample: bool = False
    """Let a learned scheduler draw its actions instead of taking the most probable ones."""
    plan: bool = False
    """Let a learned scheduler try out its likely actions in the simulator before it takes one."""
    kill_at_limit: bool = False
    """Stop a gang when it has run as long as was asked for, as batch systems do."""
    reject_unfit: bool = False
    """Leave out jobs that can never run on the cluster, instead of refusing the workload."""
    seed: int = 0
    """Of the random jobs and of the task durations."""
    timeline: Annotated[Path | None, optional("FILE")] = None
    """Write which executor ran which task when to this CSV file."""
    metrics: bool = False
    """Print all figures: waits, slowdowns, queue and users, too; --json always has them."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        from ganger.planning import load_scheduler
        from ganger.simulator.cluster import cluster_of
        from ganger.simulator.simulate import simulate
        from ganger.warmup import compile_notice
        from ganger.workload.classes import parse_class

        classes = tuple(map(parse_class, self.classes))
        cluster = cluster_of(
            classes,
            executors=self.executors,
            move_delay_s=self.move_delay_s,
            reconsider=self.reconsider,
            work_conserving=self.work_conserving,
        )
        if self.scheduler == "replay":
            self._replay(cluster)
            return
        scheduler = load_scheduler(self.scheduler, sample=self.sample, plan=self.plan)
        workload, rejected = self._workload(cluster)
        with compile_notice():
            result = simulate(
                cluster,
                workload,
                scheduler,
                seed=self.seed,
                timeline=self.timeline is not None,
                kill_at_limit=self.kill_at_limit,
            )
        result = replace(result, rejected=rejected)
        if self.timeline is not None:
            _write_timeline(self.timeline, workload, result)
        self._print(str(scheduler), workload, result)

    def _replay(self, cluster: "Cluster") -> None:
        from ganger.evaluation import log_error, recorded_part, replay

        if self.timeline is not None or self.sample or self.plan or self.kill_at_limit:
            raise ConfigError(
                "replay runs no scheduler; leave out --timeline, --sample, --plan and "
                "--kill-at-limit"
            )
        everything, rejected = self._workload(cluster)
        workload = recorded_part(everything)
        result = replace(replay(workload, executors=cluster.executors), rejected=rejected)
        log = msgspec.to_builtins(log_error(workload, result))
        log["not_recorded"] = len(everything.jobs) - len(workload.jobs)
        if self.json:
            self._print("replay", workload, result, {"log": log})
            return
        self._print("replay", workload, result)
        print("\nAgainst the log")
        print_table(("", ""), list(log.items()))

    def _print(
        self,
        scheduler: str,
        workload: "Workload",
        result: "Result",
        more: dict[str, Any] | None = None,
    ) -> None:
        from ganger.evaluation import report

        figures = {
            "workload": self.workload,
            "executors": result.executors,
            "scheduler": scheduler,
            "seed": self.seed,
        } | result.summary()
        if self.json or self.metrics:
            figures |= msgspec.to_builtins(report(workload, result))
        if self.json:
            print_json(figures | (more or {}))
        else:
            print_table(("", ""), list(figures.items()))

    def _workload(self, cluster: "Cluster") -> "tuple[Workload, int]":
        """The jobs to run, and how many were left out."""
        from ganger.workload import FileSource, job_list_workload

        source = load(self.workload)
        if self.job_list is None:
            return to_run(source, cluster, self.jobs, self.interarrival_s, self.seed,
                          self.reject_unfit)  # fmt: skip
        if self.jobs is not None or self.interarrival_s is not None:
            raise ConfigError(
                "--job-list says which jobs arrive when; leave out --jobs and --interarrival"
            )
        whole = FileSource(source.name, job_list_workload(source, self.job_list))
        return to_run(whole, cluster, None, None, self.seed, self.reject_unfit)


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Say what is in a workload, and what is to be expected of it on a cluster.

    Everything that its reader dropped, repaired or guessed is counted, with the first places.
    """

    workload: Annotated[str, tyro.conf.Positional, arg(name="SPEC", metavar="SPEC")]
    """A file, directory or glob in a format that is recognised, - for standard input, FORMAT:PATH,
    or anything else that --workload takes."""
    executors: Annotated[int | None, optional("N")] = None
    """Task slots of the cluster; as many as the log says, unless given."""
    strict: bool = False
    """Refuse a file of which anything would have to be dropped, repaired or guessed."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        from ganger.workload import load_source
        from ganger.workload.inspection import inspect

        if self.executors is not None and self.executors < 1:
            raise ConfigError(f"--executors is {self.executors}; a cluster has 1 or more")
        seen = inspect(load_source(self.workload, strict=self.strict), self.executors)
        if self.json:
            print_json(msgspec.to_builtins(seen))
        else:
            _print_inspection(seen)


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Write a workload, or a part or variant of it, as a file of Ganger's own.

    First the window is cut out, then a sample taken, then the load scaled, then names removed.
    """

    workload: Annotated[str, tyro.conf.Positional, arg(name="IN", metavar="IN")]
    """What `ganger inspect` takes."""
    out: Annotated[Path, tyro.conf.Positional, arg(name="OUT", metavar="OUT")]
    """FILE.jobs.jsonl, or FILE.jobs.jsonl.zst for a compressed one."""
    window: Annotated[str | None, optional("BEGIN:END")] = None
    """Only jobs that arrive from BEGIN until before END, as 7d:14d or :80%."""
    sample: Annotated[float | None, optional("N")] = None
    """Only N jobs, or below 1 that share of them, drawn at random."""
    scale_load: Annotated[float | None, optional("X")] = None
    """Divide the times between arrivals by X. Recorded starts and finishes are left out then."""
    anonymise: bool = False
    """Numbers instead of the names of jobs, stages and users."""
    seed: int = 0
    """Of the sample."""
    strict: bool = False
    """Refuse a file of which anything would have to be dropped, repaired or guessed."""

    def run(self) -> None:
        from ganger.workload import convert, write_workload

        _check_out(self.out)
        workload = _file(self.workload, strict=self.strict)
        if self.window is not None:
            workload = convert.window(workload, self.window)
        if self.sample is not None:
            workload = convert.sample(workload, self.sample, self.seed)
        if self.scale_load is not None:
            workload = convert.scale_load(workload, self.scale_load)
        if self.anonymise:
            workload = convert.anonymise(workload)
        write_workload(self.out, workload)
        print(f"{self.out}: {count(len(workload.jobs), 'job')}")


@dataclass(frozen=True, kw_only=True)
class Split:
    """Divide a workload by time, so that nothing is tested on what was trained on."""

    workload: Annotated[str, tyro.conf.Positional, arg(name="IN", metavar="IN")]
    """What `ganger inspect` takes."""
    train: Annotated[Path, tyro.conf.Positional, arg(name="TRAIN", metavar="TRAIN")]
    """A FILE.jobs.jsonl[.zst] for jobs that arrive before the moment."""
    test: Annotated[Path, tyro.conf.Positional, arg(name="TEST", metavar="TEST")]
    """A FILE.jobs.jsonl[.zst] for those that arrive then or later."""
    at: str = "80%"
    """The moment: of the time between first and last arrival, or as 30d."""
    strict: bool = False
    """Refuse a file of which anything would have to be dropped, repaired or guessed."""

    def run(self) -> None:
        from ganger.workload import convert, write_workload

        if self.train.resolve() == self.test.resolve():
            raise ConfigError(f"TRAIN and TEST are one file, {self.train}; expected two")
        for out in (self.train, self.test):
            _check_out(out)
        parts = convert.split(_file(self.workload, strict=self.strict), self.at)
        for out, part in zip((self.train, self.test), parts, strict=True):
            write_workload(out, part)
            print(f"{out}: {count(len(part.jobs), 'job')}")


class _Settings(TrainConfig, frozen=True, kw_only=True):
    """The same with flags that leave out the unit."""

    weights: Annotated[dict[str, float], arg(metavar="[USER WEIGHT ...]")] = _DEFAULTS.weights
    executors: Annotated[int | tuple[int, ...], arg(metavar="N [N ...]")] = EXECUTORS
    interarrival_s: Annotated[
        float | tuple[float, ...] | None, optional("S [S ...]", "interarrival")
    ] = None
    move_delay_s: Annotated[float, _MoveDelay] = _DEFAULTS.move_delay_s
    address: Annotated[str | None, optional("auto|HOST:PORT")] = None
    minutes: Annotated[float | None, optional("MIN")] = None
    decisions: Annotated[int | None, optional("N")] = None
    updates: Annotated[int | None, optional("N")] = None
    target_ratio: Annotated[float | None, optional("RATIO")] = None
    patience: Annotated[int | None, optional("N")] = None
    validate_every_s: Annotated[float, arg(name="validate-every", metavar="S")] = (
        _DEFAULTS.validate_every_s
    )

    @classmethod
    def of(cls, config: TrainConfig) -> Self:
        return cls(**{name: getattr(config, name) for name in TrainConfig.__struct_fields__})

    def plain(self) -> TrainConfig:
        return TrainConfig(**{name: getattr(self, name) for name in TrainConfig.__struct_fields__})


_SETTINGS = _Settings()


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a scheduler: actors act in simulated clusters, a learner learns from them.

    Ctrl-C ends it within seconds, with a checkpoint; a second one ends it at once.
    """

    settings: Annotated[_Settings, arg(name="")] = _SETTINGS
    run_dir: Annotated[Path | None, optional("DIR")] = None
    """A new directory for settings, metrics and checkpoints; runs/DATE-TIME unless given."""
    config: Annotated[Path | None, optional("FILE")] = None
    """A TOML file of settings, named as in a run's config.json; flags go before it."""
    resume: bool = False
    """Go on with the run in --run-dir from its newest intact checkpoint. Its settings are taken
    from there; limits such as --minutes and --decisions may be changed."""
    init: Annotated[Path | None, optional("CHECKPOINT")] = None
    """Start from the policy, and the critic, of this run or checkpoint instead of random ones."""
    reject_unfit: bool = False
    """Leave out jobs that can never run on the cluster, instead of refusing the workload."""

    def run(self) -> None:
        _need_torch("ganger train")
        if self.resume and self.run_dir is None:
            raise ConfigError("--resume needs a run to go on with: --run-dir DIR")
        if self.resume and self.init is not None:
            raise ConfigError("--resume goes on from the run's own checkpoint; leave out --init")
        from ganger.training.loop import train
        from ganger.warmup import compile_notice, compile_training

        # A last look at all of torch's and Numba's objects takes seconds, and a run is to end soon.
        atexit.register(gc.freeze)
        settings = self.settings.plain()
        run_dir = self.run_dir or Path("runs") / datetime.now().strftime("%Y%m%d-%H%M%S")
        smallest = min(size for size, _ in settings.cells)
        source, _ = fitting(load(settings.workload), smallest, self.reject_unfit)
        jobs = check_lists(
            source, settings.part, settings.executors, settings.interarrival_s, settings.jobs
        )
        settings = msgspec.structs.replace(settings, jobs=jobs)
        with compile_notice():
            compile_training(settings.messages)
        print(
            f"{'Going on with' if self.resume else 'Training into'} {run_dir}, "
            f"{_limits(settings)}; Ctrl-C ends it earlier, with a checkpoint. "
            f"Jobs: {arrivals_in_words(source, settings.part, settings.interarrival_s)}.",
            file=sys.stderr,
        )
        with _stop_on_signals() as stop, Progress("training") as bar:

            def progress(metrics: dict[str, Any]) -> None:
                bar.update(metrics["share_done"], 1, _training_line(metrics, settings.objective))

            outcome = train(
                settings,
                run_dir,
                progress=progress,
                stop=stop,
                resume=self.resume,
                init=self.init,
                source=source,
            )
        validation = (
            ""
            if outcome.best_ratio is None
            else f"Best:  {OWN_FIGURES[settings.objective]} {outcome.best_ratio:.3f} of fair's "
            "in validation; `evaluate` takes that checkpoint\n"
        )
        print(
            f"{outcome.updates} updates from {outcome.decisions:,} decisions; "
            f"{REASONS.get(outcome.reason, outcome.reason)}.\n"
            f"Run:   {outcome.run}\n"
            f"{validation}"
            f"Next:  ganger evaluate {shlex.quote(str(outcome.run))}"
        )


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Compare schedulers: a learned one with heuristics, on jobs that training never saw, or
    heuristics alone.

    All run on the same job lists with the same task durations. Ratios are of mean job completion
    times, list by list, to those of the baseline; below 1 is better.
    """

    run_directory: Annotated[
        Path | None, tyro.conf.Positional, arg(name="RUN", metavar="[RUN]", help_behavior_hint="")
    ] = None
    """A run directory of `ganger train`, for its best checkpoint, or one of its checkpoints."""
    workload: Annotated[str | None, optional("SPEC")] = None
    """Where jobs come from; as in training unless given, and synthetic without a run."""
    part: Annotated[Literal["test", "all"] | None, optional("{test,all}")] = None
    """Which jobs of a file: test, the last 20 %, or all, of a file that was divided before. Without
    a run, all unless given."""
    whole: bool = False
    """One list of all these jobs instead of windows."""
    against: Annotated[str | None, optional("SCHEDULER,...")] = None
    """Heuristics, as in fair,srpt:cap=sqrt,c=1, and replay, which is what the log says happened.
    Unless given, some that suit the jobs."""
    baseline: Annotated[str | None, optional("SCHEDULER")] = None
    """What ratios are to. Unless given, fair, and for batch jobs fcfs:backfill=easy."""
    episodes: int = 200
    """Job lists; of a file, as many windows of it as share no job, if these are fewer."""
    seed: int = 0
    """Of the job lists and of the task durations."""
    executors: Annotated[int | None, optional("N")] = None
    """Task slots of the cluster; as in training unless given, and 50 without a run."""
    classes: Annotated[tuple[str, ...], arg(metavar="[NAME:COUNT:cores=C,memory=M ...]")] = ()
    """Executors of several sizes instead; a stage runs on those that meet its demand."""
    reconsider: bool = False
    """After jobs arrived, offer executors again that end a task, as the Dask driver does; else they
    stay with their stage while it has tasks. As in training where a run is named."""
    work_conserving: bool = False
    """Let no executor wait for a stage that cannot start yet, as the Dask driver does."""
    jobs: Annotated[int | None, optional("N")] = None
    """Jobs in a list; as in training unless given. Without a run, 256 of a file and 50 else."""
    interarrival_s: Annotated[float | None, optional("S", "interarrival")] = None
    """Mean seconds between two random arrivals. Unless given, as in training, and for another file
    its own arrivals: a list is so many jobs of it in a row."""
    move_delay_s: Annotated[float | None, optional("S", "move-delay")] = None
    """Seconds an executor needs to change jobs; as in training unless given, and 2 without a
    run."""
    kill_at_limit: bool = False
    """Stop a gang when it has run as long as was asked for, as batch systems do."""
    reject_unfit: bool = False
    """Leave out jobs that can never run on the cluster, instead of refusing the workload."""
    plan: bool = False
    """Also let the learned scheduler try out its likely actions in the simulator before it takes
    one: a millisecond or several for each decision."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        from ganger.evaluation import Contender, baseline_of, evaluate, parse_contenders
        from ganger.planning import PlanningScheduler
        from ganger.policy.checkpoint import TrainedOn, read_policy
        from ganger.schedulers import Fcfs, parse_scheduler, spellings
        from ganger.warmup import compile_notice, compile_planning, compile_policy
        from ganger.workload import FileSource
        from ganger.workload.classes import parse_class

        policy = None if self.run_directory is None else read_policy(self.run_directory)
        if self.plan and policy is None:
            raise ConfigError("--plan is for a learned scheduler; name its run")
        about_jobs = policy.trained_on if policy else _DEFAULTS
        settings = {name: getattr(about_jobs, name) for name in TrainedOn.__struct_fields__}
        same = self.workload in (None, settings["workload"])
        if policy and same and "all" in (settings["part"], self.part):
            raise ConfigError(
                f"all of {settings['workload']} includes what this policy was trained on; expected "
                "--workload with other jobs, and --part all for all of those"
            )
        for name in ("workload", "executors", "jobs", "interarrival_s", "move_delay_s"):
            if (given := getattr(self, name)) is not None:
                settings[name] = given
        settings["reconsider"] |= self.reconsider
        settings["work_conserving"] |= self.work_conserving
        classes = tuple(map(parse_class, self.classes))
        if classes:
            settings["executors"] = sum(given.count for given in classes)
        say_which("executors", settings["executors"], "--executors")
        source, rejected = fitting(
            load(settings["workload"]), settings["executors"], self.reject_unfit, classes
        )
        replayed = "replay" in spellings(self.against or "")
        source, not_recorded = recorded(source) if replayed else (source, 0)
        file = isinstance(source, FileSource)
        if file and self.workload and self.interarrival_s is None:
            settings["interarrival_s"] = None
        say_which("interarrival_s", settings["interarrival_s"], "--interarrival")
        own = file and settings["interarrival_s"] is None
        part: Literal["test", "all"] = self.part or ("all" if file and not policy else "test")
        if self.whole and (self.jobs is not None or not own):
            raise ConfigError(
                "--whole is for a log with its own arrivals, all of it; leave out --jobs and "
                "--interarrival"
            )
        jobs = list_jobs(own) if policy is None and self.jobs is None else settings["jobs"]
        if self.whole:
            jobs = 1  # and more
        jobs = check_lists(
            source, part, settings["executors"], settings["interarrival_s"], jobs, classes
        )
        baseline = parse_scheduler(self.baseline) if self.baseline else baseline_of(source, part)
        batch = isinstance(baseline_of(source, part), Fcfs)
        contenders = parse_contenders(self.against or (_BATCH if batch else _SHARING))
        if policy is not None:
            contenders[:0] = [
                Contender(policy.scheduler(), "learned", "argmax"),
                Contender(policy.scheduler(sample=True), "learned", "sampled"),
            ]
            if self.plan:
                planner = PlanningScheduler(policy.vector, messages=policy.messages)
                contenders.insert(2, Contender(planner, "learned", "plan"))
        if replayed and own and not (self.whole and part == "all"):
            print(
                "ganger: note: what is replayed waited for jobs from before its list, too; all "
                "others begin with an idle cluster. --whole --part all is fair to both",
                file=sys.stderr,
            )
        with compile_notice():
            compile_policy(policy is not None and policy.messages)
            if self.plan and policy is not None:
                compile_planning(policy.messages)
        with Progress("evaluating") as bar:
            rows = evaluate(
                source,
                contenders,
                executors=settings["executors"],
                classes=classes,
                reconsider=settings["reconsider"],
                work_conserving=settings["work_conserving"],
                jobs=None if self.whole else jobs,
                interarrival_s=settings["interarrival_s"],
                move_delay_s=settings["move_delay_s"],
                weights=settings["weights"],
                split=part,
                baseline=baseline,
                kill_at_limit=self.kill_at_limit,
                episodes=self.episodes,
                seed=self.seed,
                progress=lambda done, of: bar.update(done, of, f"{done} of {of} episodes"),
            )
        arrivals = arrivals_in_words(source, part, settings["interarrival_s"], self.whole)
        if self.whole:
            assert isinstance(source, FileSource)
            jobs = len(source.part(part))
        if self.json:
            about: dict[str, Any] = {"run": None, "checkpoint_step": None}
            if policy is not None:
                about = {"run": str(self.run_directory), "checkpoint_step": policy.step}
            about |= settings | {
                "classes": self.classes,
                "part": part,
                "jobs": jobs,
                "arrivals": arrivals,
            }
            about |= {"episodes": self.episodes, "seed": self.seed, "baseline": str(baseline)}
            about |= {"rejected": rejected, "not_recorded": not_recorded}
            about |= {"kill_at_limit": self.kill_at_limit}
            print_json(about | {"rows": msgspec.to_builtins(rows)})
            return
        print(
            f"{count(rows[0].episodes, 'list')} of {jobs:,} jobs on {settings['executors']} "
            f"executors, seed {self.seed}: {settings['workload']}, {arrivals}\n"
        )
        _print_rows([(row.scheduler, row) for row in rows], batch)


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Say whether a policy meets states there that are unlike those it was trained on.

    A window is 1,024 decisions in a row. Its score is its distance from the windows of the policy's
    own workload; above 1 is an alarm, and at most about 1 % of its own windows give one. What it
    takes to tell is kept with the run: ganger serve and the drivers then watch for it.
    """

    run_directory: Annotated[Path, tyro.conf.Positional, arg(name="RUN", metavar="RUN")]
    """A run directory of `ganger train`."""
    workload: Annotated[str | None, optional("SPEC")] = None
    """What arrives now; as in training unless given. Of a file, all of its jobs."""
    executors: Annotated[int | None, optional("N")] = None
    """Task slots of the cluster; as in training unless given."""
    interarrival_s: Annotated[float | None, optional("S", "interarrival")] = None
    """Mean seconds between two random arrivals; as in training unless given, and for another file
    its own arrivals."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        _need_torch("ganger drift")
        import numpy as np

        from ganger.policy.checkpoint import read_policy
        from ganger.policy.drift import save_drift
        from ganger.training.drift import calibrated, windows_seen
        from ganger.training.objective import training_table
        from ganger.training.run_directory import RunDirectory
        from ganger.warmup import compile_notice, compile_training
        from ganger.workload import FileSource

        config = RunDirectory.open(self.run_directory).config(TrainConfig)
        policy = read_policy(self.run_directory)
        given = {
            name: value
            for name in ("workload", "executors", "interarrival_s")
            if (value := getattr(self, name)) is not None
        }
        now = msgspec.structs.replace(config, **given)
        smallest = min(size for size, _ in now.cells)
        source, _ = fitting(load(config.workload), smallest, True)
        table = training_table(config, source)
        if self.workload:
            source, _ = fitting(load(self.workload), smallest, True)
            now = msgspec.structs.replace(now, part="all")
            if self.interarrival_s is None and isinstance(source, FileSource):
                now = msgspec.structs.replace(now, interarrival_s=None)
        jobs = check_lists(source, now.part, now.executors, now.interarrival_s, now.jobs)
        now = msgspec.structs.replace(now, jobs=jobs)
        changed = table if not given else training_table(now, source)
        with compile_notice():
            compile_training(config.messages)
        with Progress("measuring") as bar:
            bar.update(0, 2, "the policy's own workload")
            drift = calibrated(config, table, policy.vector)
            with suppress(OSError):  # of a run that is not ours, it is only told
                save_drift(self.run_directory, policy.step, drift)
            bar.update(1, 2, "this workload")
            scores = drift.scores(windows_seen(now, changed, policy.vector, stream=2))
        alarms = float((scores > 1).mean())
        median = float(np.median(scores))
        if self.json:
            about = {"run": str(self.run_directory), "checkpoint_step": policy.step} | given
            print_json(
                about | {"windows": len(scores), "alarm_share": alarms, "median_score": median}
            )
            return
        print(
            f"{alarms:.0%} of {len(scores)} windows are unlike the policy's own workload "
            f"(median score {median:.2f}; above 1 is an alarm)."
        )


@dataclass(frozen=True, kw_only=True)
class Tune:
    """Find the best heuristic for a workload and cluster: the bar for a learned scheduler.

    Parameters are chosen on training lists; the figures are of held-out lists.
    """

    workload: str = "synthetic"
    """Where jobs are drawn from."""
    executors: int = EXECUTORS
    """Task slots of the cluster."""
    jobs: Annotated[int | None, optional("N")] = None
    """Jobs in a list; unless given, 256 of a file with its own arrivals and 50 else."""
    interarrival_s: Annotated[float | None, optional("S", "interarrival")] = None
    """Mean seconds between two random arrivals. Unless given, a list is so many jobs of the file in
    a row, with their own arrivals; jobs of no file arrive every 25 s."""
    move_delay_s: Annotated[float, _MoveDelay] = _DEFAULTS.move_delay_s
    """Seconds an executor needs to change jobs."""
    reconsider: bool = False
    """After jobs arrived, offer executors again that end a task, as the Dask driver does; else they
    stay with their stage while it has tasks."""
    work_conserving: bool = False
    """Let no executor wait for a stage that cannot start yet, as the Dask driver does."""
    episodes: int = 64
    """Job lists in the last round of the search, and held-out lists; of a file, as many windows of
    it as share no job, if these are fewer."""
    baseline: Annotated[str | None, optional("SCHEDULER")] = None
    """What ratios are to. Unless given, fair, and for batch jobs fcfs:backfill=easy."""
    kill_at_limit: bool = False
    """Stop a gang when it has run as long as was asked for, as batch systems do."""
    reject_unfit: bool = False
    """Leave out jobs that can never run on the cluster, instead of refusing the workload."""
    seed: int = 0
    """Of the job lists and of the task durations."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        from ganger.evaluation import baseline_of, tune
        from ganger.schedulers import Fcfs, parse_scheduler
        from ganger.warmup import compile_heuristics, compile_notice
        from ganger.workload import FileSource

        source, rejected = fitting(load(self.workload), self.executors, self.reject_unfit)
        own = isinstance(source, FileSource) and self.interarrival_s is None
        jobs = list_jobs(own) if self.jobs is None else self.jobs
        splits: tuple[SplitName, ...] = ("train", "test")
        for split in splits:
            jobs = check_lists(source, split, self.executors, self.interarrival_s, jobs)
        with compile_notice():
            compile_heuristics()
        with Progress("tuning") as bar:
            report = tune(
                source,
                executors=self.executors,
                jobs=jobs,
                interarrival_s=self.interarrival_s,
                move_delay_s=self.move_delay_s,
                episodes=self.episodes,
                seed=self.seed,
                baseline=parse_scheduler(self.baseline) if self.baseline else None,
                kill_at_limit=self.kill_at_limit,
                reconsider=self.reconsider,
                work_conserving=self.work_conserving,
                progress=lambda what, done, of: bar.update(done, of, what),
            )
        arrivals = arrivals_in_words(source, "test", self.interarrival_s)
        if self.json:
            settings = asdict(self) | {"jobs": jobs, "arrivals": arrivals, "rejected": rejected}
            settings["baseline"] = report.families[0].held_out.baseline
            del settings["json"]
            print_json(settings | msgspec.to_builtins(report))
            return
        held_out = report.families[0].held_out.episodes
        print(f"{count(held_out, 'held-out list')} of {jobs} jobs: {self.workload}, {arrivals}\n")
        _print_rows(
            [(entry.scheduler, entry.held_out) for entry in report.families],
            isinstance(baseline_of(source), Fcfs),
        )
        print(f"\nBest: {report.best}")


@dataclass(frozen=True, kw_only=True)
class Warmup:
    """Compile everything ahead of time, so that no other command waits for it."""

    def run(self) -> None:
        from ganger import warmup
        from ganger.compiled import cache_home

        steps: list[tuple[str, Callable[[], None]]] = [
            ("simulator and heuristics", warmup.compile_heuristics),
            ("batch, packing heuristics", warmup.compile_batch),
            ("policy", warmup.compile_policy),
            ("planning", warmup.compile_planning),
            ("schedulers in Python", warmup.compile_protocol),
        ]
        if importlib.util.find_spec("torch"):
            steps.append(("training", warmup.compile_training))
        directory = warmup.kept_in()
        if directory is None:
            raise ConfigError(
                f"{cache_home()} cannot be written to, so nothing would be kept; set GANGER_CACHE"
            )
        print(f"Machine code is kept in {directory}")
        begin = time.perf_counter()
        for what, compile_it in steps:
            step_began = time.perf_counter()
            print(f"{what:26}", end="", flush=True)
            compile_it()
            print(f"{time.perf_counter() - step_began:6.1f} s")
        print(f"{'all':26}{time.perf_counter() - begin:6.1f} s")


@dataclass(frozen=True, kw_only=True)
class Benchmark:
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
        from ganger.warmup import compile_notice, compile_policy, compile_training

        with compile_notice():
            compile_policy()
            if importlib.util.find_spec("torch"):
                compile_training()
        with Progress("measuring") as bar:
            figures = benchmark(self.workload, seed=self.seed, progress=bar.update)
        if self.json:
            print_json(figures)
        else:
            machine = figures.pop("machine")
            print_table(("", ""), list(figures.items()))
            print(f"\n{machine['processor']}, {machine['cpus']} cores, Python {machine['python']}")


@dataclass(frozen=True, kw_only=True)
class Version:
    """Print the version."""

    def run(self) -> None:
        print(f"ganger {ganger.__version__}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        given = ["version"]
    try:
        try:
            _parse(given).run()
        finally:
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
    if given[:1] in (["train"], ["tune"], ["drift"]):
        for flag in given:
            if flag.split("=")[0] == "--classes":
                raise ConfigError(
                    f"{given[0]} knows executors of one size only; leave out --classes, which "
                    "simulate and evaluate take"
                )
    commands: dict[str, tuple[Any, Any]] = {
        "simulate": (Simulate, tyro.MISSING_NONPROP),
        "train": (Train, _train_defaults(given) or tyro.MISSING_NONPROP),
        "evaluate": (Evaluate, tyro.MISSING_NONPROP),
        "compare": (Compare, tyro.MISSING_NONPROP),
        "report": (Report, tyro.MISSING_NONPROP),
        "explain": (Explain, tyro.MISSING_NONPROP),
        "drift": (Drift, tyro.MISSING_NONPROP),
        "tune": (Tune, tyro.MISSING_NONPROP),
        "warmup": (Warmup, tyro.MISSING_NONPROP),
        "serve": (Serve, tyro.MISSING_NONPROP),
        "promote": (Promote, tyro.MISSING_NONPROP),
        "drive": (Drive, tyro.MISSING_NONPROP),
        "inspect": (Inspect, tyro.MISSING_NONPROP),
        "convert": (Convert, tyro.MISSING_NONPROP),
        "split": (Split, tyro.MISSING_NONPROP),
        "benchmark": (Benchmark, tyro.MISSING_NONPROP),
        "version": (Version, tyro.MISSING_NONPROP),
    }
    union: Any = Union[  # noqa: UP007  # of a computed list
        tuple(
            Annotated[command, subcommand(name, default=default)]
            for name, (command, default) in commands.items()
        )
    ]
    return tyro.cli(
        union,
        prog="ganger",
        description=ganger.__doc__,
        args=given,
        config=(tyro.conf.FlagCreatePairsOff,),
    )


def _train_defaults(given: list[str]) -> Train | None:
    """What the flags of `ganger train` change: a file's settings, or those of a run to resume."""
    if given[:1] != ["train"]:
        return None
    if file := _value_of("--config", given):
        return Train(settings=_Settings.of(read_toml(file, TrainConfig)))
    run = _value_of("--run-dir", given)
    if run and "--resume" in given:
        from ganger.training.run_directory import RunDirectory

        return Train(settings=_Settings.of(RunDirectory.open(run).config(TrainConfig)))
    return None


def _value_of(flag: str, given: list[str]) -> str | None:
    """What is given for a flag, before anything is parsed."""
    for at, word in enumerate(given):
        name, equals, value = word.partition("=")
        # Underscores are taken for hyphens, as the parser does.
        if name.replace("_", "-") == flag and (equals or at + 1 < len(given)):
            return value if equals else given[at + 1]
    return None


# --- workloads


def _file(spec: str, *, strict: bool) -> "Workload":
    """A workload that has arrivals of its own."""
    from ganger.workload import FileSource

    source = load(spec, strict=strict)
    if not isinstance(source, FileSource):
        raise ConfigError(f"{spec} has jobs but no arrivals; expected a file, directory or glob")
    return source.workload()


def _check_out(path: Path) -> None:
    from ganger.workload.readers.jobs import SUFFIXES

    if not path.name.endswith(SUFFIXES):
        raise ConfigError(f"{path}: expected a name that ends in {' or '.join(SUFFIXES)}")


# --- printing


def _print_rows(rows: "Sequence[tuple[str, Row]]", batch: bool) -> None:
    """Rows of a comparison under the names to show; of batch jobs, the figures usual there."""
    head = ["scheduler", "mode", "mean JCT", f"to {rows[0][1].baseline}'s", "+-", "better in"]
    lines = [
        [
            name,
            row.mode,
            f"{row.mean_jct_s:,.1f} s",
            f"{row.ratio:.3f}",
            "" if row.standard_error is None else f"{row.standard_error:.3f}",
            f"{row.win_rate:.0%}",
        ]
        for name, row in rows
    ]
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("p95", lambda row: f"{row.p95_jct_s:,.0f} s"),
        ("p99", lambda row: f"{row.p99_jct_s:,.0f} s"),
    ]
    if batch:
        columns += [
            ("mean wait", lambda row: f"{row.mean_wait_s:,.0f} s"),
            ("p95 wait", lambda row: f"{row.p95_wait_s:,.0f} s"),
            ("longest wait", lambda row: f"{row.max_wait_s:,.0f} s"),
            ("bounded slowdown", lambda row: f"{row.mean_bounded_slowdown:,.2f}"),
            ("utilisation", lambda row: f"{row.utilisation:.1%}"),
        ]
        if any(row.killed for _, row in rows):
            columns.append(("killed", lambda row: f"{row.killed:,}"))
    else:
        columns += [
            ("slowdown", lambda row: f"{row.mean_slowdown:.2f}"),
            ("makespan", lambda row: f"{row.mean_makespan_s:,.0f} s"),
        ]
    if any(row.weighted_jct_s is not None for _, row in rows):
        columns.append(("weighted JCT", lambda row: f"{row.weighted_jct_s:.1f} s"))
    for title, shown_of in columns:
        head.append(title)
        for line, (_, row) in zip(lines, rows, strict=True):
            line.append(shown_of(row))
    print_table(head, lines)


def _print_inspection(seen: "Inspection") -> None:
    lines = _draws()
    what = " ".join(filter(None, (seen.format, seen.version)))
    read = f", {seen.rows:,} rows in {count(seen.files, 'file')}" if seen.files else ""
    print(f"{seen.workload}: {what}{read}\n")
    for name, value in _overview(seen):
        print(f"{name:14}{value}")

    print()
    shape = seen.shape
    figures: list[tuple[str, Distribution | None]] = [
        ("tasks of a job", seen.sizes),
        ("work of a job, executor-seconds", seen.job_work_s),
        ("mean task of a stage, s", seen.task_s),
        ("requested run time, s", seen.limit_s),
        ("recorded wait, s", seen.wait_s),
        ("between arrivals, s", seen.arrivals.interarrival_s),
    ]
    if shape.jobs_of_one_stage < seen.jobs:
        figures += [
            ("stages of a job", shape.stages),
            ("stages in a row", shape.depth),
            ("stages side by side", shape.width),
        ]
    head = ("", "mean", "least", "median", "p90", "p99", "most", "spread" if lines else "")
    rows = [
        (name, *map(figure, (d.mean, d.least, d.median, d.p90, d.p99, d.most)), _bars(d.histogram))
        for name, d in figures
        if d is not None
    ]
    shown = len(head) if lines else -1
    print_table(head[:shown], [row[:shown] for row in rows])

    print()
    arrivals = seen.arrivals
    hours = "hour of the day" if arrivals.first else "hour of days from the first arrival on"
    _print_counts(f"arrivals by {hours}, from 0", arrivals.by_hour, lines)
    if arrivals.by_weekday is not None:
        _print_counts("arrivals by weekday, from Monday", arrivals.by_weekday, lines)

    for title, told in (
        ("Findings", [_finding(found) for found in seen.findings]),
        ("Notes", list(seen.notes)),
        ("Verdicts", [f"{verdict.severity}: {verdict.message}" for verdict in seen.verdicts]),
    ):
        print("\n".join(("", title, *(f"  {line}" for line in told or ["none"]))))


def _overview(seen: "Inspection") -> list[tuple[str, str]]:
    shape, arrivals = seen.shape, seen.arrivals
    distinct = "" if seen.distinct_jobs == seen.jobs else f", {seen.distinct_jobs:,} distinct"
    gangs = f", {shape.jobs_with_gangs:,} with gangs" if shape.jobs_with_gangs else ""
    rows = [
        ("jobs", f"{seen.jobs:,}{distinct}{gangs}"),
        ("stages", f"{seen.stages:,}"),
        ("tasks", f"{seen.tasks:,}"),
        ("work", f"{seen.work_s / 3600:,.1f} executor-hours"),
    ]
    if seen.users:
        busiest = (
            ""
            if seen.busiest_user_share is None
            else f"; {seen.busiest_user!r} has {seen.busiest_user_share:.0%} of the work"
        )
        rows.append(("users", f"{seen.users:,}{busiest}"))
    if shape.jobs_of_one_stage < seen.jobs:
        rows.append(("in series", f"{shape.serial_share:.0%} of a job's work, on average"))
    rows.append(("time span", f"{arrivals.span_s:,.0f} s ({arrivals.span_s / 86400:,.1f} days)"))
    if arrivals.first:
        rows.append(("arrivals", f"{arrivals.first} to {arrivals.last}"))
    if seen.executors is not None:
        source = "" if seen.executors_from == "given" else ", which is what the log says"
        load = "jobs arrive all at once" if seen.load is None else f"{seen.load:.3f}"
        rows.append(("offered load", f"{load} on {seen.executors:,} executors{source}"))
    else:
        rows.append(
            (
                "offered load",
                "unknown: the log does not say how big its cluster is; give --executors",
            )
        )
    return rows


def _finding(found: Any) -> str:
    return f"{found.action} {found.count:,}: {found.reason} ({places(found.places)})"


def _draws() -> bool:
    """Whether standard output is a terminal that shows sparklines."""
    return sys.stdout.isatty() and (sys.stdout.encoding or "").lower().startswith("utf")


_BARS = "▁▂▃▄▅▆▇█"


def _bars(counts: Sequence[int]) -> str:
    """A sparkline; what is there at all can be seen."""
    most = max(counts) or 1
    return "".join(
        " " if count == 0 else _BARS[round((len(_BARS) - 1) * count / most)] for count in counts
    )


def _print_counts(what: str, counts: Sequence[int], lines: bool) -> None:
    if lines:
        print(f"{what}: {_bars(counts)}  {min(counts):,} to {max(counts):,}")
    else:
        print(f"{what}: {' '.join(map(str, counts))}")


def _write_timeline(path: Path, workload: "Workload", result: "Result") -> None:
    from ganger.workload import topological_order

    assert result.timeline is not None
    ids = [
        [job.stages[position].id for position in topological_order(job.stages)]
        for job in workload.jobs
    ]
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("start_s", "finish_s", "executor", "job", "stage", "task"))
            for start_s, finish_s, executor, job, stage, task in result.timeline.tolist():
                names = (workload.jobs[job].id, ids[job][stage])
                writer.writerow((start_s, finish_s, executor, *names, task))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _limits(settings: TrainConfig) -> str:
    """When a run will end, in words."""
    minutes = settings.time_limit_s / 60
    limits = [f"for {minutes:g} min"] if minutes < float("inf") else []
    if settings.decisions is not None:
        limits.append(f"{settings.decisions:,} decisions")
    if settings.updates is not None:
        limits.append(f"{settings.updates:,} updates")
    if settings.target_ratio is not None:
        limits.append(f"until {settings.target_ratio:g} of fair's")
    if settings.patience is not None:
        limits.append(f"until {settings.patience} validations bring nothing")
    return " or ".join(limits)


def _training_line(metrics: dict[str, Any], objective: str) -> str:
    ratio, figure = metrics["recent_ratio"], OWN_FIGURES[objective]
    validation = (
        ()
        if metrics["validation_ratio"] is None
        else (
            f"in validation {metrics['validation_ratio']:.3f}, "
            f"{metrics['validation_to_heuristic']:.3f} of the best heuristic's",
        )
    )
    return ", ".join(
        (
            f"{metrics['decisions']:,} decisions",
            f"{metrics['decisions_per_s']:,.0f}/s",
            "no episode yet" if ratio is None else f"{figure} {ratio:.3f} of fair's",
            *validation,
            f"lag {metrics['lag_mean']:.1f}",
            f"idle: learner {metrics['learner_idle_share']:.0%}, "
            f"actors {metrics['actor_idle_share']:.0%}",
        )
    )


# --- stopping


def _need_torch(purpose: str) -> None:
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError(purpose, "train")


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second one ends the process at once."""
    stop = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)

    def ask_to_stop(*_: object) -> None:
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        stop.set()
        # Not print: it may be what the signal interrupted.
        os.write(2, b"\nStopping: a checkpoint is being written; once more ends it at once.\n")

    before = {number: signal.signal(number, ask_to_stop) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
