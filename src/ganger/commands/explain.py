"""`ganger explain`: why a policy decided as it did, and how it usually decides."""

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from tyro.conf import arg

from ganger.commands.terminal import Progress, count, optional, print_json, print_table
from ganger.commands.workloads import arrivals_in_words, load, say_which, to_run
from ganger.errors import ConfigError
from ganger.training.config import TrainConfig

if TYPE_CHECKING:
    from ganger.evaluation.explain import Explanation, Influence
    from ganger.evaluation.habits import Habits
    from ganger.policy.checkpoint import TrainedOn

_DEFAULTS = TrainConfig()
_MOST = 8  # lines of a table; --json has them all
_LEAST = 0.01  # evidence that is worth a line


@dataclass(frozen=True, kw_only=True)
class Explain:
    """Say why a learned scheduler decided as it did, and how it usually decides.

    The jobs are those that ganger simulate runs with the same settings. With --decision or --at,
    one of its decisions is taken apart: what could be chosen, which features moved the choice, what
    other schedulers would have done, and what would have followed.
    """

    run_directory: Annotated[Path, tyro.conf.Positional, arg(name="RUN", metavar="RUN")]
    """A run directory of ganger train, for its best checkpoint, or one of its checkpoints; or
    general, the policy that comes with Ganger."""
    decision: Annotated[int | None, optional("N")] = None
    """Which decision of the episode, counted from 1."""
    at_s: Annotated[float | None, optional("T", "at")] = None
    """The first decision at or after this time, seconds from the start."""
    against: Annotated[str, arg(metavar="SCHEDULER,...")] = "fair,srpt"
    """Heuristics that are asked for their decision in the same state."""
    workload: Annotated[str | None, optional("SPEC")] = None
    """What arrives; as in training unless given. Files are run as they are."""
    jobs: Annotated[int | None, optional("N")] = None
    """Only the first N jobs of a file; else jobs to draw at random, as many as in training unless
    given."""
    interarrival_s: Annotated[float | None, optional("S", "interarrival")] = None
    """Mean seconds between two arrivals of random jobs; as in training unless given."""
    executors: Annotated[int | None, optional("N")] = None
    """Task slots of the cluster; as in training unless given."""
    classes: Annotated[tuple[str, ...], arg(metavar="[NAME:COUNT:cores=C,memory=M ...]")] = ()
    """Executors of several sizes instead; a stage runs on those that meet its demand."""
    move_delay_s: Annotated[float | None, optional("S", "move-delay")] = None
    """Seconds an executor needs to change jobs; as in training unless given."""
    reconsider: bool = False
    """After jobs arrived, offer executors again that end a task. As in training unless given."""
    work_conserving: bool = False
    """Let no executor wait for a stage that cannot start yet. As in training unless given."""
    reject_unfit: bool = False
    """Leave out jobs that can never run on the cluster, instead of refusing the workload."""
    seed: int = 0
    """Of the random jobs and of the task durations."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        import msgspec

        from ganger.evaluation.explain import explain
        from ganger.policy.checkpoint import read_policy
        from ganger.schedulers import SCHEDULERS, parse_schedulers
        from ganger.simulator.cluster import cluster_of
        from ganger.warmup import compile_notice
        from ganger.workload import FileSource
        from ganger.workload.classes import parse_class

        if self.decision is not None and self.at_s is not None:
            raise ConfigError("--decision and --at both say which decision; leave out one")
        name = str(self.run_directory)
        if name.partition(":")[0] in SCHEDULERS and not self.run_directory.exists():
            raise ConfigError(
                f"{name} is a heuristic, which has no probabilities to explain; expected a run of "
                "ganger train, one of its checkpoints, or general"
            )
        policy = read_policy(self.run_directory)
        against = parse_schedulers(self.against)
        trained = policy.trained_on
        source = load(self.workload or trained.workload)
        file = isinstance(source, FileSource)
        classes = tuple(map(parse_class, self.classes))
        cluster = cluster_of(
            classes,
            executors=0 if classes else self._one(trained, "executors", "--executors"),
            move_delay_s=self._one(trained, "move_delay_s", "--move-delay"),
            reconsider=self.reconsider or trained.reconsider,
            work_conserving=self.work_conserving or trained.work_conserving,
        )
        interarrival_s, jobs = self.interarrival_s, self.jobs
        if not file or not self.workload:
            interarrival_s = self._one(trained, "interarrival_s", "--interarrival")
        if jobs is None and not (file and interarrival_s is None):
            jobs = trained.jobs
        workload, rejected = to_run(
            source, cluster, jobs, interarrival_s, self.seed, self.reject_unfit
        )
        with compile_notice(), Progress("simulating") as bar:
            explanation, habits = explain(
                policy,
                cluster,
                workload,
                decision=self.decision,
                at_s=self.at_s,
                seed=self.seed,
                against=against,
                progress=lambda done, of: bar.update(done, of, f"{done} of {of} jobs done"),
            )
        about = {
            "run": name,
            "checkpoint_step": policy.step,
            "workload": source.name,
            "arrivals": arrivals_in_words(source, "all" if file else "test", interarrival_s, True),
            "jobs": len(workload.jobs),
            "rejected": rejected,
            "executors": cluster.executors,
            "classes": self.classes,
            "move_delay_s": cluster.move_delay_s,
            "reconsider": cluster.reconsider,
            "work_conserving": cluster.work_conserving,
            "seed": self.seed,
        }
        if self.json:
            about |= {"decision": msgspec.to_builtins(explanation)}
            about |= {"habits": msgspec.to_builtins(habits) | {"text": habits.paragraph()}}
            print_json(about)
            return
        print(
            f"{name}, step {policy.step}, on {cluster.executors} executors: "
            f"{count(len(workload.jobs), 'job')} of {source.name}, {about['arrivals']}, "
            f"seed {self.seed}\n"
        )
        if explanation is not None:
            _print_explanation(explanation)
        _print_habits(habits)

    def _one(self, trained: "TrainedOn", name: str, flag: str) -> Any:
        """A setting: the given one, else that of training, else the usual one of training's."""
        if (given := getattr(self, name)) is not None:
            return given
        value = getattr(trained, name)
        usual = getattr(_DEFAULTS, name)
        if isinstance(value, list | tuple):
            from ganger.workload.sources import INTERARRIVAL_S

            usual = INTERARRIVAL_S if name == "interarrival_s" else usual
            if usual in value:
                return usual
        say_which(name, value, flag)
        return value


def _print_explanation(found: "Explanation") -> None:
    whose = "nobody's" if found.source_job is None else f"of job {found.source_job}"
    stay = f"{count(found.on_offer, 'executor')} on offer, {whose}"
    print(
        f"Decision {found.decision:,} of {found.decisions:,}, at {found.time_s:,.1f} s: {stay}; "
        f"{count(found.jobs, 'job')} in the system\n"
        f"Chosen: stage {found.stage} of job {found.job}, limit {found.limit}; it gets "
        f"{found.given} of the {found.on_offer}\n"
    )
    print("Stages that could be chosen")
    head = ("job", "stage", "probability", "could use", "task", "its job has", "work left")
    shown = found.stages[:_MOST]
    print_table(head, [
        (s.job, s.stage, _percent(s.probability), f"{s.demand:,}", f"{s.task_s:,.1f} s",
         f"{s.job_supply:,}", f"{s.job_work_s:,.0f} s")
        for s in shown
    ])  # fmt: skip
    _say_more(len(found.stages), len(shown), sum(s.probability for s in found.stages[_MOST:]))
    print(f"\nLimits of job {found.job}, for stage {found.stage}")
    by_chance = sorted(found.limits, key=lambda one: -one.probability)
    likely = sorted(by_chance[:_MOST], key=lambda one: one.limit)
    print_table(("limit", "probability", "gets"), [
        (f"{one.limit:,}", _percent(one.probability), f"{one.executors:,}") for one in likely
    ])  # fmt: skip
    _say_more(len(by_chance), len(likely), sum(one.probability for one in by_chance[_MOST:]))
    _print_influences(found)
    _print_alternatives(found)


def _say_more(all_there_are: int, shown: int, probability: float) -> None:
    if all_there_are > shown:
        print(f"and {all_there_are - shown} more, {_percent(probability)} together")


def _print_influences(found: "Explanation") -> None:
    print()
    _say(
        "What moved the choice, by occlusion: one feature is hidden from the policy, and its "
        "probabilities are computed again. A hidden feature of stages, jobs and limits has the "
        "typical value for all of them; of the cluster, that of the episode. Features that say "
        "nearly the same cover for one another, so a small change does not mean that what a "
        "feature says does not matter. Evidence is the change of log(p / (1 - p))."
    )
    if len(found.stages) == 1:
        print("\nThere was but one stage to choose.")
    else:
        _print_moved(
            f"stage {found.stage} of job {found.job}",
            [(one, one.stage_change, one.stage_odds_change) for one in found.influences],
            found.stages[0].probability,
        )
    if len(found.limits) == 1:
        print("\nThere was but one limit to choose, as all give the same executors.")
    else:
        (chance,) = (one.probability for one in found.limits if one.limit == found.limit)
        _print_moved(
            f"limit {found.limit}, for that stage",
            [(one, one.limit_change, one.limit_odds_change) for one in found.influences],
            chance,
        )


def _print_moved(
    what: str, moved: "list[tuple[Influence, float, float | None]]", chance: float
) -> None:
    moved.sort(key=lambda one: -abs(one[2] or 0.0))
    seen = [one for one in moved if abs(one[2] or 0.0) >= _LEAST]
    print(f"\n{what}: {_percent(chance)} with all features")
    if seen:
        print_table(("if hidden", "p", "evidence", "here", "typical", ""), [
            (one.feature, _percent(chance + change), f"{odds or 0.0:+.2f}", _figure(one.here),
             _figure(one.neutral), one.meaning.replace("1 if ", "whether "))
            for one, change, odds in seen[:_MOST]
        ])  # fmt: skip
    if len(seen) < _MOST:
        print(f"hidden alone, no other feature changes the evidence by {_LEAST} or more")


def _print_alternatives(found: "Explanation") -> None:
    print("\nWhat others would have done in this state, and what follows if the policy goes on")
    head = ("", "job", "stage", "limit", "gets", "probability", "jobs of now take", "mean JCT")
    rows = []
    for one in found.alternatives:
        what = ("-", "-", "idle") if one.job is None else (one.job, one.stage, str(one.limit))
        ends = ("never end" if one.known_s is None else f"{one.known_s:,.2f} s",
                "never end" if one.mean_jct_s is None else f"{one.mean_jct_s:,.2f} s")  # fmt: skip
        rows.append((one.scheduler, *what, str(one.executors), _percent(one.probability), *ends))
    print_table(head, rows)
    _say(
        "jobs of now take: on average until they are done, as far as it is known now: nothing "
        "arrives any more, tasks take what is to be expected. mean JCT: of all jobs of this "
        "episode, which is hindsight; what one decision changes of that is luck for the most part."
    )
    print()


def _print_habits(habits: "Habits") -> None:
    _say(f"Habits. {habits.paragraph()}")
    print()
    print("Mean limit, by the chosen job's executor-seconds left and the executors on offer")
    print_table(("work left", *habits.on_offer), [
        (f"{name}  ", *("" if mean is None else f"{mean:.1f}" for mean in row))
        for name, row in zip(habits.work, habits.mean_limit, strict=True)
    ])  # fmt: skip


def _say(text: str) -> None:
    print(textwrap.fill(text, 108))


def _percent(probability: float) -> str:
    return f"{max(probability, 0.0):.1%}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
