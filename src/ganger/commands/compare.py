"""`ganger compare`: schedulers side by side, and everything about it in a directory."""

import hashlib
import importlib.util
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import arg

from ganger.commands.terminal import Progress, count, optional, print_json, print_table
from ganger.commands.workloads import (
    arrivals_in_words,
    check_lists,
    fitting,
    list_jobs,
    load,
    recorded,
    say_which,
)
from ganger.errors import ConfigError, MissingExtraError
from ganger.training.config import TrainConfig

if TYPE_CHECKING:
    from ganger.evaluation import Contender, JobLists
    from ganger.evaluation.job_rows import Part, Results
    from ganger.evaluation.summary import Summary
    from ganger.workload import JobSource

_SHARING = "fair,fifo,fair:source=capped,kshortest,srpt:cap=useful,leftover=idle"
_BATCH = "fcfs:backfill=easy,sjf:backfill=easy,f1:backfill=easy,cpf"
_BLOCK = 16  # windows in a part: what a stop can lose
_MOST_TIMES = 4  # as many executors, at most, where fewer than today's are not enough


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Run schedulers side by side over many windows or job lists, and keep every job of it.

    DIR gets jobs.parquet and jobs.csv, a row for each job under each scheduler, and summary.json,
    which is computed from them; tasks.parquet has every task of one window. Stopped, the same
    command goes on where it was.
    """

    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        arg(name="RUN", metavar="[RUN ...]", help_behavior_hint=""),
    ] = ()
    """Run directories of `ganger train`, for their best checkpoints: each is compared with its most
    probable action and with sampled ones."""
    out: Annotated[Path, arg(metavar="DIR", help_behavior_hint="")] = Path("comparison")
    """Where results go. Unless given, comparison."""
    workload: Annotated[str | None, optional("SPEC")] = None
    """Where jobs come from; as the first run was trained on unless given, else synthetic."""
    part: Annotated[Literal["test", "all"] | None, optional("{test,all}")] = None
    """Which jobs of a file: test, the last 20 %, or all. Without a run, all unless given."""
    against: Annotated[str | None, optional("SCHEDULER,...")] = None
    """Heuristics, as in fair,srpt:cap=sqrt,c=1; general, the policy that comes with Ganger; and
    replay, which is what the log says happened. Unless given, some that suit the jobs."""
    episodes: int = 50
    """Windows; of a file, as many as share no job, if these are fewer."""
    seed: int = 0
    """Of the job lists and of the task durations."""
    executors: Annotated[tuple[int, ...], optional("N ...")] = ()
    """Task slots of the cluster, or of several."""
    load_sweep: Annotated[str | None, optional("BEGIN:END:STEP")] = None
    """Offered loads, as 0.5:1.1:0.1: what arrives in a second is so many executors' work of one."""
    jobs: Annotated[int | None, optional("N")] = None
    """Jobs in a window; as in training. Without a run, 256 of a file and 50 else."""
    interarrival_s: Annotated[float | None, optional("S", "interarrival")] = None
    """Mean seconds between two random arrivals; unless given, a file's own arrivals."""
    move_delay_s: Annotated[float | None, optional("S", "move-delay")] = None
    """Seconds an executor needs to change jobs; as in training, and 2 without a run."""
    reconsider: bool = False
    """After jobs arrived, offer executors again that end a task. As in training with a run."""
    work_conserving: bool = False
    """Let no executor wait for a stage that cannot start yet. As in training with a run."""
    reject_unfit: bool = False
    """Leave out jobs that can never run on the cluster, instead of refusing the workload."""
    capacity: Annotated[str | None, optional("SCHEDULER")] = None
    """What runs today: how many executors give its mean JCT under each other scheduler?"""
    cost_per_executor_hour: Annotated[float | None, optional("MONEY")] = None
    """Says what that saves."""
    report: bool = False
    """Also write DIR/report.html, as `ganger report DIR` does."""
    json: bool = False
    """Print summary.json instead of tables."""

    def run(self) -> None:
        from ganger.evaluation.job_rows import Results
        from ganger.evaluation.summary import summarise
        from ganger.evaluation.sweep import loads_of
        from ganger.policy.checkpoint import read_policy
        from ganger.warmup import compile_notice, compile_policy
        from ganger.workload import FileSource
        from ganger.workload.sources import arrivals_of

        if self.capacity is not None and self.load_sweep is not None:
            raise ConfigError("--capacity is about the workload's own load; leave out --load-sweep")
        if self.cost_per_executor_hour is not None and self.capacity is None:
            raise ConfigError("--cost-per-executor-hour goes with --capacity, today's scheduler")
        if self.report and importlib.util.find_spec("matplotlib") is None:
            raise MissingExtraError("--report", "report")
        if self.episodes < 1:
            raise ConfigError(f"--episodes {self.episodes}: expected 1 or more")
        policies = [read_policy(path) for path in self.runs]
        settings = self._settings(policies[0].trained_on if policies else TrainConfig())
        executors = settings["executors"]
        loads: list[float | None] = [None]
        if self.load_sweep is not None:
            loads = [*loads_of(self.load_sweep)]
        source, _ = fitting(load(settings["workload"]), min(executors), self.reject_unfit)
        replayed = "replay" in (self.against or "").split(",")
        source, _ = recorded(source) if replayed else (source, 0)
        file = isinstance(source, FileSource)
        if file and self.workload and self.interarrival_s is None:
            settings["interarrival_s"] = None
        say_which("interarrival_s", settings["interarrival_s"], "--interarrival")
        part: Literal["test", "all"] = self.part or ("all" if file and not policies else "test")
        own = isinstance(arrivals_of(source, part, settings["interarrival_s"]), tuple)
        jobs = self.jobs or (settings["jobs"] if policies else list_jobs(own))
        jobs = check_lists(source, part, min(executors), settings["interarrival_s"], jobs)
        contenders, prints = self._contenders(source, part, policies)
        if replayed and (loads != [None] or len(executors) > 1):
            raise ConfigError("what is replayed ran on its own cluster under its own load; leave "
                              "out --load-sweep and further --executors, or replay")  # fmt: skip
        settings |= {"jobs": jobs, "part": part, "episodes": self.episodes, "seed": self.seed}
        settings |= {"loads": loads, "schedulers": prints}
        settings["arrivals"] = arrivals_in_words(source, part, settings["interarrival_s"])
        results = Results(self.out, settings)
        with compile_notice():
            compile_policy(any(policy.messages for policy in policies))
        plan = _Plan(source, part, settings, contenders)
        with Progress("comparing") as bar:
            parts = plan.run(results, bar)
        table = results.finish(parts)
        results.keep_tasks(plan.tasks())
        capacity = None
        if self.capacity is not None:
            with Progress("sizing the cluster") as bar:
                capacity = plan.capacity(self.capacity, self.cost_per_executor_hour, bar)
        summary = summarise(table, settings, capacity)
        results.keep_summary(summary)
        if self.report:
            from ganger.report import write_report

            with Progress("drawing") as bar:
                written = write_report(str(self.out), progress=lambda what: bar.update(0, 1, what))
            print(f"ganger: the page is {written.out}, {written.size}", file=sys.stderr)
        if self.json:
            import msgspec

            print_json(msgspec.to_builtins(summary))
            return
        _print(summary, self.out, table.num_rows)

    def _settings(self, about: Any) -> dict[str, Any]:
        """Of the comparison: as in training unless told otherwise."""
        names = ("workload", "interarrival_s", "move_delay_s", "reconsider", "work_conserving")
        settings = {name: getattr(about, name) for name in (*names, "jobs", "executors")}
        for name in ("workload", "interarrival_s", "move_delay_s"):
            if (given := getattr(self, name)) is not None:
                settings[name] = given
        settings["reconsider"] |= self.reconsider
        settings["work_conserving"] |= self.work_conserving
        trained = settings["executors"]
        settings["executors"] = list(
            self.executors or ([trained] if isinstance(trained, int) else trained)
        )
        if min(settings["executors"]) < 1:
            raise ConfigError(f"--executors {min(settings['executors'])}: expected 1 or more")
        return settings

    def _contenders(
        self, source: "JobSource", part: Literal["test", "all"], policies: list[Any]
    ) -> "tuple[list[Contender], dict[str, str]]":
        """Who is compared; and each one's name, with what tells it from another of that name."""
        from ganger.evaluation import Contender, baseline_of, parse_contenders
        from ganger.planning import load_scheduler
        from ganger.schedulers import Fcfs, spellings

        batch = isinstance(baseline_of(source, part), Fcfs)
        found, prints = [], {}
        for path, policy in zip(self.runs, policies, strict=True):
            name = path.name if path.name not in prints else str(path)
            prints[name] = hashlib.sha256(policy.vector.tobytes()).hexdigest()[:16]
            found.append(Contender(policy.scheduler(), name, "argmax"))
            found.append(Contender(policy.scheduler(sample=True), name, "sampled"))
        for spelled in spellings(self.against or (_BATCH if batch else _SHARING)):
            if spelled == "general":
                found.append(Contender(load_scheduler("general"), "general", "argmax"))
                prints["general"] = ""
                continue
            contender = parse_contenders(spelled)[0]
            if contender.name in prints:
                continue
            prints[contender.name] = ""
            found.append(contender)
        return found, prints


class _Plan:
    """What is to be run, in parts."""

    def __init__(
        self,
        source: "JobSource",
        part: Literal["test", "all"],
        settings: dict[str, Any],
        contenders: "list[Contender]",
    ) -> None:
        self.source, self.part, self.settings = source, part, settings
        self.contenders = contenders

    def lists(self, executors: int, load: float | None) -> "JobLists":
        from ganger.evaluation import JobLists
        from ganger.evaluation.sweep import under_load
        from ganger.simulator.simulate import Cluster

        source, part, between_s = self.source, self.part, self.settings["interarrival_s"]
        split: Literal["train", "test", "all"] = part
        if load is not None:
            source, split, between_s = under_load(source, part, between_s, load, executors)
        return JobLists(
            source,
            cluster=Cluster(
                executors=executors,
                move_delay_s=self.settings["move_delay_s"],
                reconsider=self.settings["reconsider"],
                work_conserving=self.settings["work_conserving"],
            ),
            jobs=self.settings["jobs"],
            interarrival_s=between_s,
            seed=self.settings["seed"],
            split=split,
            censor=True,
        )

    def run(self, results: "Results", bar: Progress) -> "list[Part]":
        """Run what is not there yet; all parts, in order."""
        from ganger.evaluation.job_rows import Part, columns

        parts = []
        of_settings = self._of_settings
        began, run_here, done = time.monotonic(), 0, 0
        total = len(of_settings) * len(self.contenders) * self.settings["episodes"]
        for executors, load_ in of_settings:
            lists = self.lists(executors, load_)
            windows = lists.first(self.settings["episodes"])
            total = len(of_settings) * len(self.contenders) * len(windows)
            for contender in self.contenders:
                for first in range(0, len(windows), _BLOCK):
                    some = tuple(windows[first : first + _BLOCK])
                    part = Part(contender.name, contender.mode, executors, load_, some)
                    parts.append(part)
                    done += len(some)
                    if results.has(part):
                        continue
                    outcomes = lists.all_outcomes([contender.scheduler], some).of(0)
                    results.keep(part, columns(part, lists, outcomes, self.source.name))
                    run_here += len(some)
                    left_s = (time.monotonic() - began) / run_here * (total - done)
                    note = f"{done} of {total} windows, {left_s:,.0f} s left"
                    bar.update(done, total, note)
        return parts

    def tasks(self) -> dict[str, Any]:
        """What ran when in the first window, on the cluster and under the load that are shown."""
        from ganger.evaluation.timeline import shown_setting, timeline

        executors, load = shown_setting(self._of_settings)
        lists = self.lists(executors, load)
        return timeline(lists, self.contenders, executors, load)

    @property
    def _of_settings(self) -> list[tuple[int, float | None]]:
        return [(n, load) for n in self.settings["executors"] for load in self.settings["loads"]]

    def capacity(self, today: str, cost: float | None, bar: Progress) -> list[dict[str, Any]]:
        """The cluster that each scheduler needs for today's mean JCT."""
        from ganger.evaluation.episodes import Replay
        from ganger.evaluation.sweep import enough_executors
        from ganger.schedulers import parse_scheduler

        executors = self.settings["executors"][0]
        now = self.lists(executors, None)
        windows = now.first(self.settings["episodes"])
        scheduler = parse_scheduler(today)
        jct_s = now.all_jct_s([scheduler], windows)[0]
        arrival_s = now.jobs_of(windows).arrival_s
        makespan_s = (arrival_s + jct_s).max(axis=1) - arrival_s.min(axis=1)
        hours = executors * float(makespan_s.mean()) / 3600
        target_s = float(jct_s.mean())
        found: list[dict[str, Any]] = [
            {"scheduler": str(scheduler), "mode": "heuristic", "executors": executors,
             "mean_jct_s": target_s, "executor_hours": hours, "saved": None}
        ]  # fmt: skip

        def resized(number: int) -> "JobLists":
            return now if number == executors else self.lists(number, None)

        learned = [c for c in self.contenders if c.name != str(scheduler)]
        for k, contender in enumerate(learned):
            bar.update(k, len(learned), contender.name)
            scheduler_of = contender.scheduler
            if isinstance(scheduler_of, Replay):
                continue
            needed = enough_executors(
                resized, scheduler_of, windows, target_s, _MOST_TIMES * executors
            )
            row: dict[str, Any] = {"scheduler": contender.name, "mode": contender.mode}
            if needed is None:
                found.append(row | {"executors": None, "saved": None})
                continue
            found.append(row | needed | {"saved": 1 - needed["executor_hours"] / hours})
        if cost is not None:
            for row in found:
                if row["executors"] is not None:
                    row["cost"] = row["executor_hours"] * cost
        return found


def _print(summary: "Summary", out: Path, rows: int) -> None:
    about = summary.settings
    windows = summary.pairs[0].windows if summary.pairs else about["episodes"]
    print(f"{count(windows, 'window')} of {about['jobs']:,} jobs, seed {about['seed']}: "
          f"{about['workload']}, {about['arrivals']}\n")  # fmt: skip
    several = len({(row.executors, row.load) for row in summary.schedulers}) > 1
    head = ["scheduler", "mode", "mean JCT", "p50", "p95", "p99", "mean wait", "slowdown",
            "utilisation"]  # fmt: skip
    if several:
        head = ["executors", "load", *head]
    lines = []
    for row in summary.schedulers:
        line = [
            row.scheduler, row.mode, f"{row.mean_jct_s:,.1f} s", f"{row.p50_jct_s:,.1f} s",
            f"{row.p95_jct_s:,.0f} s", f"{row.p99_jct_s:,.0f} s", f"{row.mean_wait_s:,.1f} s",
            f"{row.mean_slowdown:,.2f}", f"{row.utilisation:.1%}",
        ]  # fmt: skip
        if several:
            own = "its own" if row.load is None else f"{row.load:g}"
            line = [str(row.executors), own, *line]
        lines.append(line)
    print_table(head, lines)
    if unfinished := sum(row.unfinished for row in summary.schedulers):
        print(f"\n{count(unfinished, 'job')} did not finish; each counts as if it had at the end "
              "of its window, the least that it can be")  # fmt: skip
    print()
    if several:
        _print_winners(summary)
    else:
        for pair in summary.pairs:
            print(pair.sentence)
    if summary.pairs and summary.pairs[0].comparisons > 1:
        print(
            f"\n{summary.pairs[0].comparisons} comparisons were made at once. Each interval is "
            "that of one, 95 %; whether two are told apart allows for all of them."
        )
    if summary.capacity:
        print()
        _print_capacity(summary)
    print(f"\n{rows:,} rows in {out}/jobs.parquet and jobs.csv; figures in summary.json",
          file=sys.stderr)  # fmt: skip


def _print_winners(summary: "Summary") -> None:
    """Of each cluster and load: the best, and by how much it beats the next."""
    lines = []
    seen = set()
    for pair in summary.pairs:
        if (pair.executors, pair.load) in seen:
            continue
        seen.add((pair.executors, pair.load))
        interval = "" if pair.low is None else f"{pair.low:.3f} to {pair.high:.3f}"
        load = "its own" if pair.load is None else f"{pair.load:g}"
        lines.append((pair.executors, load, pair.a, pair.b, f"{pair.ratio:.3f}", interval))
    print_table(("executors", "load", "best", "next", "ratio", "95 %"), lines)


def _print_capacity(summary: "Summary") -> None:
    today, *others = summary.capacity
    print(
        f"{today['executors']} executors give {today['mean_jct_s']:,.1f} s under "
        f"{today['scheduler']}. As good:\n"
    )
    money = "cost" in today
    head = ["scheduler", "mode", "executors", "mean JCT", "executor-hours", "saved"]
    lines = []
    for row in (today, *others):
        if row["executors"] is None:
            lines.append([row["scheduler"], row["mode"], "more than enough to try", "", "", ""])
        else:
            saved = "" if row["saved"] is None else f"{row['saved']:.1%}"
            lines.append([
                row["scheduler"], row["mode"], str(row["executors"]),
                f"{row['mean_jct_s']:,.1f} s", f"{row['executor_hours']:,.2f}", saved,
            ])  # fmt: skip
        if money:
            lines[-1].append(f"{row['cost']:,.2f}" if "cost" in row else "")
    print_table([*head, "cost"] if money else head, lines)
