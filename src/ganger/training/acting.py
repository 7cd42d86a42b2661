"""An actor as one compiled call: many environments, T decisions in each, recorded as they are made.

For every decision: advance the simulator, build features, run the policy, sample, record. No Python
in between and no GIL, so actors are threads. An environment whose episode ends starts the next one
at once, with jobs and durations from its own random stream.
"""

import math
from typing import Any, ClassVar

import numpy as np

from ganger.compiled import compiled, records
from ganger.policy.features import GLOBAL_WIDTH, Rows, new_rows, room_needed, write_features
from ganger.policy.forward import choose_decision
from ganger.policy.layout import LEVELS
from ganger.simulator.engine import advance, cost, decide, job_seconds, load
from ganger.simulator.state import State
from ganger.streams import derive
from ganger.structs import ArrayStruct, struct_at
from ganger.workload.arrivals import draw_job_list, draw_window

ENVIRONMENT = np.dtype(
    [
        ("state", "i8"),  # address of its simulator State
        ("key", "u8"),  # random stream
        ("episode", "i8"),  # episodes begun
        ("decision", "i8"),  # decisions of the present episode
        ("mean_interarrival_s", "f8"),  # of a log, what it is on average
        ("move_delay_s", "f8"),
        ("jobs", "i4"),  # in an episode
        ("executors", "i4"),
        ("begun", "i4"),
        ("next_jobs", "i4"),  # in the next episode: the first one is shorter, so that they spread
        ("objective", "i4"),  # a value of OBJECTIVES
        ("reconsider", "i4"),
        ("conserving", "i4"),
    ],
    align=True,
)
EPISODE = np.dtype(  # a finished episode
    [
        ("key", "u8"),
        ("job_seconds", "f8"),
        ("cost", "f8"),
        ("jobs", "i4"),
        ("environment", "i4"),
    ]
)

_state_at = struct_at(State)
_TRUE = np.bool_(True)  # a literal would make Numba compile the callee once more


class Environments(ArrayStruct):
    """The environments of one actor; `states` of the same actor keeps their memory."""

    environments: Any
    levels: Any
    templates: Any
    arrivals_s: Any
    FIELDS: ClassVar = {
        "environments": (ENVIRONMENT, 1),
        "levels": (np.int32, 2),  # [environments, LEVELS]
        "templates": (np.int32, 1),  # scratch, [jobs]
        "arrivals_s": (np.float64, 1),  # scratch, [jobs]
    }


class Decisions(ArrayStruct):
    """What was done and what came of it; decision d = environment x (T + 1) + t.

    The last of each environment's T + 1 is only observed: learning bootstraps from it.
    """

    chosen: Any  # [decisions]: stage row, counted from the decision's first
    level: Any  # [decisions]: index of the limit
    log_probability: Any  # [decisions]: of stage and limit, under the behaviour policy
    cost: Any  # [decisions]: the objective's, until the next decision or the episode's end
    elapsed_s: Any  # [decisions]: until then
    done: Any  # [decisions]: 1 if the episode ended there
    episodes: Any  # finished ones
    cursor: Any  # [3]: environment and t to go on with, finished episodes
    FIELDS: ClassVar = {
        "chosen": (np.int32, 1),
        "level": (np.int32, 1),
        "log_probability": (np.float32, 1),
        "cost": (np.float32, 1),
        "elapsed_s": (np.float32, 1),
        "done": (np.uint8, 1),
        "episodes": (EPISODE, 1),
        "cursor": (np.int64, 1),
    }


def new_decisions(environments: int, steps: int) -> Decisions:
    """Room for `steps` decisions in each environment, and the observation after them."""
    count = environments * (steps + 1)
    return Decisions(
        chosen=np.zeros(count, np.int32),
        level=np.zeros(count, np.int32),
        log_probability=np.zeros(count, np.float32),
        cost=np.zeros(count, np.float32),
        elapsed_s=np.zeros(count, np.float32),
        done=np.zeros(count, np.uint8),
        episodes=records(environments * steps, EPISODE),
        cursor=np.zeros(3, np.int64),
    )


@compiled
def episode_job_list(key, environment, table, templates, arrivals_s, jobs):
    """Draw the job list of the episode with that key; from a log's table a window of it."""
    if len(table.log_arrivals_s) > 0:
        draw_window(
            derive(key, 0),
            jobs,
            table.log_templates,
            table.log_arrivals_s,
            templates[:jobs],
            arrivals_s[:jobs],
        )
        return
    draw_job_list(
        derive(key, 0),
        jobs,
        environment.mean_interarrival_s,
        len(table.templates),
        templates[:jobs],
        arrivals_s[:jobs],
    )


@compiled
def _begin_episode(all_environments, i, state, table):
    environment = all_environments.environments[i]
    key = derive(environment.key, environment.episode)
    jobs = environment.next_jobs
    environment.next_jobs = environment.jobs
    environment.episode += 1
    environment.decision = 0
    environment.begun = 1
    templates, arrivals_s = all_environments.templates, all_environments.arrivals_s
    episode_job_list(key, environment, table, templates, arrivals_s, jobs)
    load(
        state,
        table,
        templates[:jobs],
        arrivals_s[:jobs],
        environment.executors,
        environment.move_delay_s,
        derive(key, 1),
    )
    state.clock[0].reconsider = environment.reconsider
    state.clock[0].conserving = environment.conserving
    advance(state, table)


@compiled
def _write_gap(rows, d, environment):
    """What the critic sees of the environment that its state does not show."""
    rows.globals[d, GLOBAL_WIDTH - 1] = math.log1p(environment.mean_interarrival_s) / 5


@compiled
def act(all_environments, table, weights, scratch, rows, decisions, steps, messages):
    """Make `steps` decisions in every environment.

    Returns 1 when done, 0 when the rows are full: give it larger ones and call again.
    """
    cursor = decisions.cursor
    count = len(all_environments.environments)
    for i in range(cursor[0], count):
        environment = all_environments.environments[i]
        state = _state_at(environment.state)
        if environment.begun == 0:
            _begin_episode(all_environments, i, state, table)
        levels = all_environments.levels[i]
        first_t = cursor[1] if i == cursor[0] else 0
        for t in range(first_t, steps + 1):
            d = i * (steps + 1) + t
            stage_rows, job_rows, edges = room_needed(state, table, messages)
            if (
                rows.stage_pointer[d] + stage_rows > len(rows.stages)
                or rows.job_pointer[d] + job_rows > len(rows.jobs)
                or rows.edge_pointer[d] + edges > len(rows.edges)
            ):
                cursor[0] = i
                cursor[1] = t
                return 0
            if t == steps:
                write_features(
                    state, table, rows, d, messages, _TRUE, scratch.path, scratch.work_path
                )
                _write_gap(rows, d, environment)
                break
            episode_key = derive(environment.key, environment.episode - 1)
            chosen, level, log_p = choose_decision(
                state,
                table,
                weights,
                scratch,
                rows,
                d,
                levels,
                messages,
                _TRUE,
                derive(derive(episode_key, 2), environment.decision),
                _TRUE,
            )
            _write_gap(rows, d, environment)
            decisions.chosen[d] = chosen
            decisions.level[d] = level
            decisions.log_probability[d] = log_p
            environment.decision += 1
            clock = state.clock[0]
            cost_before = cost(state, environment.objective)
            now_before = clock.now
            decide(state, table, rows.stage_index[rows.stage_pointer[d] + chosen], levels[level])
            alive = advance(state, table)
            decisions.cost[d] = cost(state, environment.objective) - cost_before
            decisions.elapsed_s[d] = clock.now - now_before
            decisions.done[d] = 1 - alive
            if alive == 0:
                finished = decisions.episodes[cursor[2]]
                finished.key = episode_key
                finished.job_seconds = job_seconds(state)
                finished.cost = cost(state, environment.objective)
                finished.jobs = clock.jobs
                finished.environment = i
                cursor[2] += 1
                _begin_episode(all_environments, i, state, table)
    cursor[0] = count
    cursor[1] = 0
    return 1


def grown(rows: Rows, factor: float = 1.5) -> Rows:
    """Larger rows with the same contents."""
    decisions = len(rows.on_offer)
    larger = new_rows(
        decisions,
        int(len(rows.stages) * factor) + 1024,
        int(len(rows.jobs) * factor) + 1024,
        int(len(rows.edges) * factor) + 1024,
    )
    for name in Rows.FIELDS:
        old = getattr(rows, name)
        getattr(larger, name)[: len(old)] = old
    return larger


__all__ = ["LEVELS", "Decisions", "Environments", "act", "grown", "new_decisions"]
