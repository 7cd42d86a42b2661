"""What is known of a state: no luck, no arrivals to come, and otherwise the state itself."""

import numpy as np
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger import streams
from ganger.schedulers import Fair, Fifo, KShortest
from ganger.simulator import engine
from ganger.simulator.durations import task_duration_s
from ganger.simulator.known import copy_known, copy_state, left_s, new_known, told_table
from ganger.simulator.observing import Names, observe
from ganger.simulator.simulate import Cluster, load_episode, prepare, result_of
from ganger.simulator.state import EXECUTOR_ARRIVAL, TASK_DONE
from ganger.simulator.table import FIRST, FRESH, REST, build_table
from ganger.streams import Stream
from ganger.workload import Job, PerTask, Pool, Stage, Wave, Waves, Workload, topological_order

pytestmark = pytest.mark.uncompiled

WAVES = Waves(
    levels=(
        Wave(executors=2, fresh_s=(9.0,), first_s=(4.0, 6.0), rest_s=(10.0, 1.0, 3.0, 2.0)),
        Wave(executors=4, fresh_s=(13.0,), first_s=(8.0,), rest_s=(4.0,)),
    ),
    interpolation="linear",
)
GANG = Stage(id="g", task_count=2, durations=Pool((5.0,)), gang=True, limit_s=60.0)


def told_of(*stages):
    return told_table(build_table([tuple(stages)]))


def stage(name, durations, tasks=2, **more):
    return Stage(id=name, task_count=tasks, durations=durations, **more)


def told_duration_s(stages, which, executors, wave):
    table, _ = told_of(*stages)
    return task_duration_s(table, which, np.uint64(7), 0, executors, wave)


@pytest.mark.parametrize(
    ("executors", "wave", "seconds"),
    [
        (1, FRESH, 9.0),
        (2, FIRST, 5.0),  # (4 + 6) / 2
        (2, REST, 4.0),  # (10 + 1 + 3 + 2) / 4
        (3, FRESH, 11.0),  # between 9 and 13
        (3, FIRST, 6.5),
        (50, FIRST, 8.0),
    ],
)
def test_a_task_takes_the_mean_of_its_profile(executors, wave, seconds):
    assert told_duration_s([stage("x", WAVES)], 0, executors, wave) == pytest.approx(seconds)


def test_without_a_profile_a_task_takes_what_was_estimated_or_asked_for():
    stages = [
        stage("a", PerTask((1.0, 2.0)), estimated_task_s=7.0),
        stage("b", Pool((3.0, 4.0))),
        GANG,
    ]
    assert [told_duration_s(stages, k, 1, FRESH) for k in range(3)] == [7.0, 3.5, 60.0]


def test_what_is_added_to_a_list_is_in_its_mean_and_in_what_is_left():
    warm = Waves(levels=(Wave(executors=1, first_s=(1.0, 3.0)),), warmup_s=10.0)
    table, told = told_of(stage("x", warm))
    assert task_duration_s(table, 0, np.uint64(0), 0, 1, FRESH) == 12.0
    assert left_s(table, told, 0, FRESH, 1, 0.0) == 12.0
    assert left_s(table, told, 0, FRESH, 1, 12.0) == 1.0  # only 13 s is longer


@pytest.mark.parametrize(
    ("executors", "elapsed_s", "seconds"),
    [
        (2, 0.0, 4.0),
        (2, 1.0, 4.0),  # 2, 3 and 10 are longer: (1 + 2 + 9) / 3
        (2, 2.5, 4.0),  # 3 and 10: (0.5 + 7.5) / 2
        (2, 9.0, 1.0),
        # 3 executors: a quarter of the short level's half and all of the other's: (.125 x 7 + ...)
        (3, 3.0, (0.5 * (7.0 / 4) + 0.5 * 1.0) / (0.5 * (1 / 4) + 0.5 * 1.0)),
        (2, 10.0, 0.4),  # longer than any: a tenth of the estimate, 4 s
    ],
)
def test_a_task_that_runs_goes_on_for_what_longer_ones_took_on_average(
    executors, elapsed_s, seconds
):
    table, told = told_of(stage("x", WAVES, estimated_task_s=4.0))
    assert left_s(table, told, 0, REST, executors, elapsed_s) == pytest.approx(seconds)


def test_without_a_profile_a_task_goes_on_for_the_rest_of_its_estimate():
    table, told = told_of(stage("x", Pool((3.0, 5.0))), GANG)
    assert left_s(table, told, 0, REST, 1, 1.0) == 3.0
    assert left_s(table, told, 0, REST, 1, 3.9) == pytest.approx(0.4)
    assert left_s(table, told, 1, FRESH, 2, 20.0) == 40.0


# --- a state that waits for a decision


def names_of(workload):
    ordered = [[job.stages[p] for p in topological_order(job.stages)] for job in workload.jobs]
    return Names(
        [job.id for job in workload.jobs],
        [tuple(stage.id for stage in stages) for stages in ordered],
        [tuple(stage.parents for stage in stages) for stages in ordered],
    )


def decided(workload, executors, decisions, *, scheduler=None, seed=0):
    """A state that waits for a decision, after so many; None if there are not so many."""
    episode = prepare(workload)
    state = load_episode(episode, Cluster(executors=executors), seed=seed)
    for _ in range(decisions):
        if not engine.advance(state, episode.table):
            return None
        s, limit = (scheduler or KShortest(k=2)).choose(state, episode.table)
        if s < 0:
            engine.decline(state, episode.table)
        else:
            engine.decide(state, episode.table, s, limit)
    return (state, episode.table) if engine.advance(state, episode.table) else None


def known_of(state, table):
    told_by, told = told_table(table)
    known, moved = new_known(state)
    copy_known(state, told_by, told, known, moved)
    return known, told_by


def go_on(state, table, scheduler):
    """Until nothing is left; the state's own copy of the decision first."""
    while True:
        s, limit = scheduler.choose(state, table)
        if s < 0:
            engine.decline(state, table)
        else:
            engine.decide(state, table, s, limit)
        if not engine.advance(state, table):
            return


@settings(max_examples=60, deadline=None)
@given(
    workload=strategies.workloads(),
    executors=st.integers(1, 12),
    decisions=st.integers(0, 25),
)
def test_a_known_state_looks_like_the_state_itself(workload, executors, decisions):
    if (found := decided(workload, executors, decisions)) is None:
        return
    state, table = found
    names = names_of(workload)
    active = state.active[: state.clock[0]["active"]].tolist()
    known, told_by = known_of(state, table)
    of_active = Names(*([part[j] for j in active] for part in names))
    # The job that has ended is never seen.
    seen = observe(known, told_by, Names(*([*part, ()] for part in of_active)))
    assert seen == observe(state, table, names)


@settings(max_examples=60, deadline=None)
@given(
    workload=strategies.workloads(),
    executors=st.integers(1, 12),
    decisions=st.integers(0, 25),
    scheduler=st.sampled_from([Fair(), Fifo(), KShortest(k=2)]),
)
def test_a_known_state_can_be_run_to_its_end(workload, executors, decisions, scheduler):
    if (found := decided(workload, executors, decisions)) is None:
        return
    known, told_by = known_of(*found)
    unstarted = int((known.stages["tasks"] - known.stages["launched"]).sum())
    copy, _ = new_known(found[0])
    copy_state(known, copy)
    go_on(copy, told_by, scheduler)
    clock = copy.clock[0]
    assert clock["finished"] == clock["jobs"]
    assert clock["active"] == 0
    assert (copy.stages["finished"] == copy.stages["tasks"]).all()
    # The state that was copied is as it was.
    assert int((known.stages["tasks"] - known.stages["launched"]).sum()) == unstarted


def simple_waves(seconds):
    return Waves(levels=(Wave(executors=1, first_s=(seconds,)),))


def certain(jobs=4):
    """Jobs that all are there at once and whose tasks take as long as they are told to."""
    return Workload(
        tuple(
            Job(
                id=str(j),
                arrival_s=0.0,
                stages=(
                    # Roots, so that hardly any two events fall together: among those that do, a
                    # known state takes the executors in order.
                    Stage(id="x", task_count=3 + j, durations=simple_waves((2 + 9 * j) ** 0.5)),
                    Stage(id="y", parents=("x",), task_count=2, durations=simple_waves(5**0.5)),
                    Stage(id="z", task_count=4, durations=simple_waves((3 + 7 * j) ** 0.5)),
                ),
            )
            for j in range(jobs)
        )
    )


@pytest.mark.parametrize("decisions", range(0, 18, 3))
def test_where_nothing_is_unknown_what_is_foreseen_happens(decisions):
    state, table = decided(certain(), 5, decisions, scheduler=Fair())
    known, told_by = known_of(state, table)
    go_on(state, table, Fair())
    go_on(known, told_by, Fair())
    happened = result_of(state).finish_s
    assert known.clock[0]["job_seconds"] == pytest.approx(happened.sum())


def everything(state):
    return {name: getattr(state, name).copy() for name in state.FIELDS}


@settings(max_examples=40, deadline=None)
@given(
    workload=strategies.workloads(),
    executors=st.integers(1, 12),
    decisions=st.integers(0, 25),
    seed=st.integers(0, 2**32),
)
def test_nothing_that_is_not_known_changes_what_is_known(workload, executors, decisions, seed):
    if (found := decided(workload, executors, decisions)) is None:
        return
    state, table = found
    told_by, told = told_table(table)
    known, moved = new_known(state)
    copy_known(state, told_by, told, known, moved)
    before = everything(known)

    rng = np.random.default_rng(seed)
    clock = state.clock[0]
    for event in state.heap[: clock["heap_size"]]:
        if event["what"] & 1 == TASK_DONE:
            event["time"] = clock["now"] + rng.exponential(9.0)
    to_come = state.jobs[clock["arrived"] :]
    to_come["arrival_s"] = clock["now"] + rng.exponential(9.0, len(to_come))
    to_come["template"] = 0
    state.jobs["key"] = rng.integers(0, 2**63, len(state.jobs), dtype=np.uint64)
    state.stages["key"] = rng.integers(0, 2**63, len(state.stages), dtype=np.uint64)

    other, moved = new_known(state)
    copy_known(state, told_by, told, other, moved)
    after = everything(other)
    used = int(other.clock[0]["heap_size"])
    for name, array in after.items():
        rows = slice(0, used) if name == "heap" else slice(None)
        assert repr(before[name][rows].tolist()) == repr(array[rows].tolist()), name


def test_an_executor_on_its_way_arrives_when_it_will():
    state, table = decided(certain(2), 3, 4, scheduler=Fifo())
    moving = {
        int(event["what"]) >> 1: float(event["time"])
        for event in state.heap[: state.clock[0]["heap_size"]]
        if event["what"] & 1 == EXECUTOR_ARRIVAL
    }
    known, _ = known_of(state, table)
    foreseen = {
        int(event["what"]) >> 1: float(event["time"])
        for event in known.heap[: known.clock[0]["heap_size"]]
        if event["what"] & 1 == EXECUTOR_ARRIVAL
    }
    assert foreseen == moving


def test_the_stream_of_luck_is_of_no_use_to_a_known_state():
    state, table = decided(certain(), 5, 6)
    assert state.jobs["key"].any()
    assert streams.key(0, Stream.DURATIONS)
    known, _ = known_of(state, table)
    assert not known.jobs["key"].any()
    assert not known.stages["key"].any()
