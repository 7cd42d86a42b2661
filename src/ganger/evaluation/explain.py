"""Why a policy decided as it did: one decision of an episode, taken apart.

The episode is the one that `simulate` runs with the policy's most probable actions. What moved a
choice is measured by *occlusion* (Zeiler & Fergus 2014, arXiv:1311.2901): one feature is hidden
from the policy and the probability of what it chose is computed again. To hide a feature of stages
or jobs, all of them get its mean over those that the policy sees in this state, and likewise of
limits: it can then tell none from another by that feature. A feature of the whole cluster gets its
mean over the decisions of the episode. Features that say nearly the same cover for one another, so
a small change does not mean that the policy does without what a feature says.

What would have followed from another scheduler's choice is tried out, once each: that choice is
taken, and the policy decides from then on.
"""

import math
import re
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.errors import ConfigError
from ganger.evaluation.habits import Habits, Sample, habits_of
from ganger.planning.lookahead import Learned, try_out
from ganger.planning.scheduler import learned_for
from ganger.policy.checkpoint import SavedPolicy
from ganger.policy.features import (
    JOB_FEATURES,
    POLICY_GLOBAL_FEATURES,
    POLICY_GLOBALS,
    STAGE_FEATURES,
)
from ganger.policy.forward import (
    MASKED,
    choose_decision,
    limit_logits,
    stage_logits,
    weights_of,
    write_level,
)
from ganger.policy.layout import LEVEL_WIDTH, SLOPE
from ganger.schedulers import Fair, Heuristic, Srpt
from ganger.schedulers.measures import remaining_work_s
from ganger.simulator import engine
from ganger.simulator.known import copy_known, new_known, told_table
from ganger.simulator.simulate import Cluster, Episode, load_episode, prepare
from ganger.simulator.state import State
from ganger.simulator.table import Table
from ganger.workload.model import Workload, topological_order
from ganger.workload.verdicts import never_fit, refuse_misfits

Floats = NDArray[np.float64]

LEVEL_FEATURES = (
    "limit: executors / cluster",
    "log_limit: log1p(executors) / 4",
    "given: executors on offer that the stage gets / cluster",
    "log_given: log1p(executors on offer that the stage gets) / 4",
    "given_share: of the executors on offer",
    "covers: 1 if the stage gets all that it could use",
)
"""What the policy sees of each limit, in the order of `policy/forward.py`'s `write_level`."""

_FIRST, _KEY, _FALSE = np.int64(0), np.uint64(0), np.bool_(False)
_GROUPS = {"stage": STAGE_FEATURES, "job": JOB_FEATURES, "cluster": POLICY_GLOBAL_FEATURES}
_EVERY = 256  # decisions between two calls of `progress`


class StageChance(msgspec.Struct, frozen=True, kw_only=True):
    """A stage that could be chosen."""

    job: str
    stage: str
    probability: float
    demand: int
    """Executors that it could still use."""
    task_s: float
    """Estimated seconds of one of its tasks."""
    job_supply: int
    """Executors that its job has or is promised, those on offer included where they are its."""
    job_work_s: float
    """Estimated executor-seconds that its job has left."""


class LimitChance(msgspec.Struct, frozen=True, kw_only=True):
    """A limit for the job of the chosen stage. Of several that give the stage the same executors,
    the policy knows the smallest only."""

    limit: int
    probability: float
    """Given the stage."""
    executors: int
    """Executors on offer that the stage gets with it."""


class Influence(msgspec.Struct, frozen=True, kw_only=True):
    """What hiding one feature changes."""

    feature: str
    """`stage.`, `job.` or `cluster.` and its name in `policy/features.py`, or `limit.` and its name
    in LEVEL_FEATURES."""
    meaning: str
    here: float
    """Of the chosen stage, its job or the cluster, in the unit that `meaning` names."""
    neutral: float
    """What took its place. The mean of a logarithm, turned back: a typical value."""
    stage_change: float
    """Probability of the chosen stage when hidden - when seen."""
    stage_odds_change: float | None
    """Likewise of log(p / (1 - p)), which tells more where p is close to 1; None if there is but
    one stage to choose."""
    limit_change: float
    """Probability of the chosen limit, given that stage: likewise."""
    limit_odds_change: float | None


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler would do in this state, and what would follow."""

    scheduler: str
    job: str | None
    """None: it leaves the executors on offer where they are."""
    stage: str | None
    limit: int | None
    executors: int
    """Executors on offer that the stage gets."""
    same: bool
    """Whether that is what the policy chose: the same executors for the same stage."""
    probability: float
    """That the policy gives it."""
    known_s: float | None
    """Mean time from now until each job in the system is done, as far as it is known: nothing
    arrives any more, and tasks take what is to be expected. None: the jobs would never be done."""
    mean_jct_s: float | None
    """Mean completion time of all jobs of the episode, with its own arrivals and durations: known
    in hindsight only."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One decision."""

    decision: int
    """Counted from 1."""
    decisions: int
    """Of the whole episode."""
    time_s: float
    executors: int
    on_offer: int
    source_job: str | None
    """Whose executors are on offer; None: nobody's."""
    jobs: int
    """In the system."""
    job: str
    stage: str
    limit: int
    given: int
    """Executors on offer that the chosen stage gets."""
    stages: tuple[StageChance, ...]
    """Most probable first; the first is chosen."""
    limits: tuple[LimitChance, ...]
    """Of the chosen stage's job, ascending."""
    influences: tuple[Influence, ...]
    """Of all features, those that change the stage's probability most first."""
    alternatives: tuple[Alternative, ...]
    """The policy's own decision, then the others'."""


def explain(
    policy: SavedPolicy,
    cluster: Cluster,
    workload: Workload,
    *,
    decision: int | None = None,
    at_s: float | None = None,
    seed: int = 0,
    against: Sequence[Heuristic] = (Fair(), Srpt()),
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Explanation | None, Habits]:
    """Run the workload under the policy, and take one of its decisions apart.

    Args:
        decision: which one, counted from 1.
        at_s: else the first one at or after this time; with neither, only habits are found.
        seed: of task durations, as in `simulate`.
        against: whose decisions in the same state are compared.
        progress: called now and then with the jobs that are done, and with all.

    Raises:
        ConfigError: there is no such decision.
        WorkloadError: a job can never run on this cluster.
        SimulationError: the workload has no jobs.
    """
    if decision is not None and at_s is not None:
        raise ConfigError("one decision is explained: expected its number or its time, not both")
    if at_s is not None and math.isnan(at_s):
        raise ConfigError(f"the time is {at_s}; expected seconds")
    named = ((job.id, job.stages) for job in workload.jobs)
    refuse_misfits(never_fit(named, cluster.executors, cluster.classes))
    episode = prepare(workload)
    state = load_episode(episode, cluster, seed=seed)
    weights = weights_of(policy.vector, policy.messages)
    learned = learned_for(weights, policy.messages, state, episode.table)
    waiting: State | None = None
    samples: list[Sample] = []
    seen = np.zeros(POLICY_GLOBALS)
    time_s = 0.0
    while engine.advance(state, episode.table) == 1:
        clock = state.clock[0]
        number, time_s = int(clock["decisions"]) + 1, float(clock["now"])
        chosen, level = _decide(state, episode.table, learned)
        wanted = number == decision or (at_s is not None and time_s >= at_s)
        if waiting is None and wanted:
            waiting, decision = _copied(state), number
        seen += learned.rows.globals[0, :POLICY_GLOBALS]
        s, limit = learned.rows.stage_index[chosen], learned.levels[level]
        samples.append(_sample(state, learned, int(s), int(limit)))
        if progress is not None and number % _EVERY == 1:
            progress(int(clock["finished"]), int(clock["jobs"]))
        engine.decide(state, episode.table, s, limit)
    habits = habits_of(samples, cluster.executors)
    if decision is None and at_s is None:
        return None, habits
    if waiting is None:
        many = len(samples)
        if decision is not None:
            raise ConfigError(f"there is no decision {decision}; expected 1 to {many}")
        raise ConfigError(
            f"no decision is made at {at_s:g} s or later; the last of {many} is at {time_s:.6g} s"
        )
    trial = learned_for(weights, policy.messages, state, episode.table)
    found = _Decision(waiting, episode, workload, learned, trial, seen / len(samples))
    return found.explanation(len(samples), against), habits


def _decide(state: State, table: Table, learned: Learned) -> tuple[int, int]:
    """The policy's row and level in a state that waits for a decision; the rows are written."""
    chosen, level, _ = choose_decision(
        state, table, learned.weights, learned.scratch, learned.rows, _FIRST, learned.levels,
        learned.messages, _FALSE, _KEY, _FALSE,
    )  # fmt: skip
    return int(chosen), int(level)


def _copied(state: State) -> State:
    return state.replace(**{name: getattr(state, name).copy() for name in State.FIELDS})


def _sample(state: State, learned: Learned, s: int, limit: int) -> Sample:
    """What a decision adds to the habits."""
    clock, rows = state.clock[0], learned.rows
    job = int(state.stages[s]["job"])
    count = int(rows.stage_pointer[1])
    may_choose = rows.stage_index[:count][rows.stage_choice[:count] == 1]
    jobs = np.unique(state.stages["job"][may_choose]).tolist()
    work_s = {j: float(remaining_work_s(state, np.int64(j))) for j in jobs}
    return Sample(
        work_s=work_s[job],
        on_offer=int(clock["on_offer"]),
        limit=limit,
        given=int(engine.amount(state, np.int64(s), np.int64(limit))),
        could_use=min(int(engine.demand(state, np.int64(s))), int(clock["on_offer"])),
        jobs=len(jobs),
        least_work=work_s[job] == min(work_s.values()),
        could_stay=int(clock["source_job"]) in work_s,
        stays=int(clock["source_job"]) == job,
    )


class _Decision:
    """A state that waits for a decision, and the policy that takes it."""

    def __init__(
        self,
        state: State,
        episode: Episode,
        workload: Workload,
        learned: Learned,
        trial: Learned,
        usual: Floats,
    ) -> None:
        self.state, self.table, self.workload = state, episode.table, workload
        self.learned = learned
        self.trial = trial  # the same policy in a room of its own: to go on without new rows here
        self.usual = usual  # features of the whole cluster: their mean over the episode
        self.row, self.level = _decide(state, self.table, learned)
        self.s = int(learned.rows.stage_index[self.row])
        self.limit = int(learned.levels[self.level])
        self.given = self._amount(self.s, self.limit)

    def explanation(self, decisions: int, against: Sequence[Heuristic]) -> Explanation:
        clock = self.state.clock[0]
        source = int(clock["source_job"])
        job, stage = self._names(self.s)
        return Explanation(
            decision=int(clock["decisions"]) + 1,
            decisions=decisions,
            time_s=float(clock["now"]),
            executors=int(clock["executors"]),
            on_offer=int(clock["on_offer"]),
            source_job=self.workload.jobs[source].id if source >= 0 else None,
            jobs=int(clock["active"]),
            job=job,
            stage=stage,
            limit=self.limit,
            given=self.given,
            stages=self._stages(),
            limits=self._limits(),
            influences=self._influences(),
            alternatives=self._alternatives(against),
        )

    def _amount(self, s: int, limit: int) -> int:
        return int(engine.amount(self.state, np.int64(s), np.int64(limit)))

    def _names(self, s: int) -> tuple[str, str]:
        j = int(self.state.stages[s]["job"])
        job = self.workload.jobs[j]
        position = topological_order(job.stages)[s - int(self.state.jobs[j]["first_stage"])]
        return job.id, job.stages[position].id

    # --- probabilities

    def _stage_logits(self) -> Floats:
        """Of every stage row, from the rows as they are now; -inf where it may not be chosen."""
        weights, scratch, rows, _, messages = self.learned
        stage_logits(weights, scratch, rows, _FIRST, messages)
        logits = scratch.logits[: int(rows.stage_pointer[1])]
        return np.where(logits == MASKED, -np.inf, logits.astype(np.float64))

    def _limit_logits(self, row: int) -> Floats:
        """Of every level, given the stage; right after `_stage_logits`."""
        weights, scratch, rows, levels, messages = self.learned
        limit_logits(weights, scratch, rows, _FIRST, np.int64(row), levels, messages)
        logits = scratch.level_logits
        return np.where(logits == MASKED, -np.inf, logits.astype(np.float64))

    def _stages(self) -> tuple[StageChance, ...]:
        rows, state = self.learned.rows, self.state
        chances = _softmax(self._stage_logits())
        listed = []
        for row in np.argsort(-chances, kind="stable").tolist():
            if not rows.stage_choice[row]:
                continue
            s = int(rows.stage_index[row])
            j = int(state.stages[s]["job"])
            job, stage = self._names(s)
            listed.append(
                StageChance(
                    job=job,
                    stage=stage,
                    probability=float(chances[row]),
                    demand=int(rows.stage_demand[row]),
                    task_s=float(state.stages[s]["estimate_s"]),
                    job_supply=int(state.jobs[j]["supply"]),
                    job_work_s=float(remaining_work_s(state, np.int64(j))),
                )
            )
        return tuple(listed)

    def _limits(self) -> tuple[LimitChance, ...]:
        self._stage_logits()
        logits = self._limit_logits(self.row)
        return tuple(
            LimitChance(limit=limit, probability=chance, executors=self._amount(self.s, limit))
            for limit, chance, logit in zip(
                self.learned.levels.tolist(), _softmax(logits).tolist(), logits, strict=True
            )
            if logit > -np.inf
        )

    def _probability(self, s: int, limit: int) -> float:
        """That the policy gives a stage as many executors as that limit does."""
        rows = self.learned.rows
        (found,) = np.flatnonzero(rows.stage_index[: int(rows.stage_pointer[1])] == s)
        of_stage = _softmax(self._stage_logits())[found]
        chances = _softmax(self._limit_logits(int(found))).tolist()
        wanted = self._amount(s, limit)
        return float(of_stage) * math.fsum(
            chance
            for level, chance in zip(self.learned.levels.tolist(), chances, strict=True)
            if level > 0 and self._amount(s, level) == wanted
        )

    # --- features

    def _influences(self) -> tuple[Influence, ...]:
        rows = self.learned.rows
        stages, jobs = int(rows.stage_pointer[1]), int(rows.job_pointer[1])
        seen = {
            "stage": rows.stages[:stages],
            "job": rows.jobs[:jobs],
            "cluster": rows.globals[:1],
        }
        own = {"stage": self.row, "job": int(rows.stage_job[self.row]), "cluster": 0}
        stage_logits, limit_logits = self._stage_logits(), self._limit_logits(self.row)
        found = []

        def add(
            group: str, described: str, here: float, neutral: float, stage: Floats, limit: Floats
        ) -> None:
            name, _, meaning = described.partition(": ")
            unit, plain = in_units(meaning, int(self.state.clock[0]["executors"]))
            stage_change, stage_odds_change = _change(stage_logits, stage, self.row)
            limit_change, limit_odds_change = _change(limit_logits, limit, self.level)
            found.append(
                Influence(
                    feature=f"{group}.{name}",
                    meaning=unit,
                    here=plain(here),
                    neutral=plain(neutral),
                    stage_change=stage_change,
                    stage_odds_change=stage_odds_change,
                    limit_change=limit_change,
                    limit_odds_change=limit_odds_change,
                )
            )

        for group, features in _GROUPS.items():
            for k, described in enumerate(features):
                column = seen[group][:, k]
                kept = column.copy()
                mean = self.usual[k] if group == "cluster" else kept.mean(dtype=np.float64)
                column[:] = mean
                stage_after = self._stage_logits()
                limit_after = self._limit_logits(self.row)
                column[:] = kept
                here = float(kept[own[group]])
                add(group, described, here, float(mean), stage_after, limit_after)
        for k, described in enumerate(LEVEL_FEATURES):
            here, mean, limit_after = self._hidden_in_limits(k)
            add("limit", described, here, mean, stage_logits, limit_after)
        found.sort(
            key=lambda one: (-abs(one.stage_odds_change or 0), -abs(one.limit_odds_change or 0))
        )
        return tuple(found)

    def _hidden_in_limits(self, k: int) -> tuple[float, float, Floats]:
        """A feature of limits: of the chosen one, the mean, and the logits without it."""
        rows, levels = self.learned.rows, self.learned.levels
        self._stage_logits()
        logits = self._limit_logits(self.row)
        legal = np.flatnonzero(logits > -np.inf)
        job_row = int(rows.stage_job[self.row])
        given = (rows.job_own[job_row], rows.stage_demand[self.row], rows.on_offer[0])
        seen = np.empty((len(legal), LEVEL_WIDTH), np.float32)
        for x, level in zip(seen, legal, strict=True):
            write_level(levels, np.int64(level), *given, rows.executors[0], x)
        column = seen[:, k].copy()
        mean = column.mean(dtype=np.float64)
        # Once more with the true values: what is compared is rounded in the same way.
        pairs = [self._logits_of_limits(seen)]
        seen[:, k] = mean
        pairs.append(self._logits_of_limits(seen))
        logits[legal] += pairs[1] - pairs[0]
        return float(column[legal == self.level][0]), float(mean), logits

    def _logits_of_limits(self, seen: NDArray[np.float32]) -> Floats:
        """The last layers of `limit_logits`, for features [limits, LEVEL_WIDTH]."""
        weights, scratch, *_ = self.learned
        base = scratch.limit_base[0].astype(np.float64)
        hidden = base + seen.astype(np.float64) @ weights.limit_2_level
        return np.asarray(np.maximum(hidden, SLOPE * hidden) @ weights.limit_3, np.float64)

    # --- what others would do, and what follows

    def _alternatives(self, against: Sequence[Heuristic]) -> tuple[Alternative, ...]:
        choices = [("policy", self.s, self.limit)]
        choices += [(str(other), *other.choose(self.state, self.table)) for other in against]
        tried: dict[tuple[int, int], tuple[float | None, float | None]] = {}
        found = []
        for name, s, limit in choices:
            given = self._amount(s, limit) if s >= 0 else 0
            if (s, given) not in tried:
                tried[s, given] = self._until_known_are_done(s, limit), self._to_the_end(s, limit)
            job, stage = self._names(s) if s >= 0 else (None, None)
            found.append(
                Alternative(
                    scheduler=name,
                    job=job,
                    stage=stage,
                    limit=limit if s >= 0 else None,
                    executors=given,
                    same=(s, given) == (self.s, self.given),
                    probability=self._probability(s, limit) if s >= 0 else 0.0,
                    known_s=tried[s, given][0],
                    mean_jct_s=tried[s, given][1],
                )
            )
        return tuple(found)

    def _until_known_are_done(self, s: int, limit: int) -> float | None:
        """Mean seconds from now until a job of now is done, as far as is known."""
        known, moved = new_known(self.state)
        told, told_values = told_table(self.table)
        copy_known(self.state, told, told_values, known, moved)
        if s >= 0:
            s += int(moved.stage[self.state.stages[s]["job"]])
        jobs = int(known.clock[0]["active"])
        before_s = float(engine.job_seconds(known))
        after_s = self._followed(known, told, s, limit)
        return None if after_s is None else (after_s - before_s) / jobs

    def _to_the_end(self, s: int, limit: int) -> float | None:
        """Mean completion time of the episode's jobs."""
        after_s = self._followed(_copied(self.state), self.table, s, limit)
        return None if after_s is None else after_s / len(self.workload.jobs)

    def _followed(self, state: State, table: Table, s: int, limit: int) -> float | None:
        """Job-seconds from 0 until all is done, if the policy decides after this decision."""
        if s < 0:
            engine.decline(state, table)
        else:
            engine.decide(state, table, np.int64(s), np.int64(limit))
        job_seconds, _ = try_out(state, table, self.trial, math.inf)
        clock = state.clock[0]
        return float(job_seconds) if clock["finished"] == clock["jobs"] else None


def _softmax(logits: Floats) -> Floats:
    chances = np.exp(logits - logits.max())
    return np.asarray(chances / chances.sum(), np.float64)


def _change(before: Floats, after: Floats, chosen: int) -> tuple[float, float | None]:
    """Of the probability, and of its log-odds, from the first logits to the second."""
    change = float(_softmax(after)[chosen] - _softmax(before)[chosen])
    if np.isfinite(before).sum() < 2:
        return 0.0, None
    return change, _log_odds(after, chosen) - _log_odds(before, chosen)


def _log_odds(logits: Floats, chosen: int) -> float:
    others = np.delete(logits, chosen)
    most = others.max()
    return float(logits[chosen] - most - np.log(np.exp(others - most).sum()))


_LOGARITHM = re.compile(r"log1p\((?P<unit>.+)\) / (?P<scale>\d+)")
_SHARE = re.compile(r"(?P<unit>.+) / cluster")
_SCALED = re.compile(r"(?P<unit>.+) / (?P<scale>\d+)")


def in_units(meaning: str, executors: int) -> tuple[str, Callable[[float], float]]:
    """The unit that a feature's description names, and what turns its values back into it.

    Features are scaled logarithms and shares; their descriptions in `policy/features.py` say how.
    """
    if found := _LOGARITHM.fullmatch(meaning):
        scale = float(found["scale"])
        return found["unit"], lambda value: math.expm1(scale * value)
    if found := _SHARE.fullmatch(meaning):
        return found["unit"], lambda value: executors * value
    if found := _SCALED.fullmatch(meaning):
        scale = float(found["scale"])
        return found["unit"], lambda value: scale * value
    return meaning, lambda value: value
