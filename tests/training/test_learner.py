"""The learner: on its own decisions it starts from ratios of 1, and it learns what pays."""

import msgspec
import numpy as np
import pytest
import toys

from ganger.policy.features import STAGE_WIDTH
from ganger.policy.layout import initial_vector
from ganger.policy.scheduler import PolicyScheduler
from ganger.schedulers import parse_scheduler
from ganger.simulator.simulate import Cluster, simulate
from ganger.training.actor import Actor
from ganger.training.exchange import Parameters
from ganger.training.learner import UNDONE_IN_A_ROW, NonFiniteError
from ganger.training.objective import training_table
from ganger.workload import FileSource, Job, Pool, Stage, Workload


def act(actor, learner):
    return actor.act(Parameters(learner.policy.vector(), 0)).samples


def one_step(**settings):
    """A configuration whose update is one gradient step."""
    base = toys.config(**settings)
    learning = msgspec.structs.replace(base.learning, epochs=1, minibatch=1_000_000)
    return toys.config(learning=learning, **settings)


@pytest.mark.parametrize("messages", [False, True])
def test_on_its_own_decisions_all_ratios_are_1_before_the_first_step(messages):
    config = one_step(messages=messages, executors=9)
    learner = toys.learner(config)
    metrics = learner.update([act(toys.actor(messages=messages, executors=9), learner)], 0.0)
    assert metrics["importance_mean"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-9)
    # All ratios 1: the policy loss is minus the mean of the normalised advantages.
    assert metrics["policy_loss"] == pytest.approx(0.0, abs=1e-5)
    assert metrics["entropy"] > 0


def test_an_older_policys_decisions_have_other_ratios_and_some_are_cut():
    learner, actor = toys.learner(one_step()), toys.actor()
    old = Parameters(initial_vector(np.random.default_rng(99), False) * np.float32(8), 0)
    metrics = learner.update([actor.act(old).samples], 0.0)
    assert abs(metrics["importance_mean"] - 1) > 1e-4
    assert metrics["importance_clipped"] > 0.02


def test_what_the_policy_would_never_do_again_is_not_learned_from():
    learner, actor = toys.learner(one_step()), toys.actor()
    samples = act(actor, learner)
    seen = []

    def gradients(samples, index, wanted, weighting):
        seen.append((index, wanted))
        return np.zeros(4)

    learner._backend.gradients = gradients
    # Decisions that an older policy made gladly, and this one deems impossible.
    behaviour = samples.decisions.log_probability
    behaviour[::3] = behaviour[::3] + 40.0
    metrics = learner.update([samples], 0.0)
    (index, wanted), *_ = seen
    impossible = index % 3 == 0
    assert impossible.sum() > 50
    assert np.abs(wanted.advantage[impossible]).max() < 1e-6
    assert np.abs(wanted.weight[impossible]).max() < 1e-6
    assert np.abs(wanted.advantage[~impossible]).mean() > 0.3
    np.testing.assert_allclose(wanted.weight[~impossible], 1, atol=1e-4)
    assert wanted.advantage.mean() == pytest.approx(0, abs=1e-3)
    assert metrics["importance_mean"] < 0.7


def test_an_update_repeats_by_seed_and_changes_policy_and_critic():
    def updated():
        learner = toys.learner(toys.config(seed=3))
        before = learner.policy.vector()
        critic = [p.detach().clone() for p in learner.critic.parameters()]
        metrics = learner.update([act(toys.actor(seed=3), learner)], 0.5)
        assert not np.array_equal(before, learner.policy.vector())
        assert any((a != b).any() for a, b in zip(critic, learner.critic.parameters(), strict=True))
        del metrics["update_s"]
        return learner.policy.vector(), metrics

    first, second = updated(), updated()
    np.testing.assert_array_equal(first[0], second[0])
    assert first[1] == second[1]


def test_schedules_fall_from_their_first_to_their_last_value():
    learner, actor = toys.learner(toys.config()), toys.actor()
    samples = act(actor, learner)
    rates = [learner.update([samples], progress)["learning_rate"] for progress in (0.0, 0.5, 1.0)]
    assert rates == pytest.approx([3e-3, (3e-3 * 1e-3) ** 0.5, 1e-3])


def test_a_loss_that_is_not_finite_is_an_error_that_carries_the_batch():
    learner, actor = toys.learner(toys.config()), toys.actor()
    samples = act(actor, learner)
    samples.decisions.cost[7] = np.nan
    with pytest.raises(NonFiniteError, match="not finite after 0 updates") as raised:
        learner.update([samples], 0.0)
    assert raised.value.tensors["stages"].shape[1] == STAGE_WIDTH


def test_an_update_with_a_gradient_that_is_not_finite_is_undone_and_the_next_one_is_as_if_never():
    learner, actor = toys.learner(toys.config()), toys.actor()
    first, second = act(actor, learner), act(actor, learner)
    learner.update([first], 0.0)
    before = learner.state()
    original, calls = learner._backend.gradients, []

    def gradients(*arguments):
        losses = original(*arguments)
        calls.append(losses)
        if len(calls) == 2:  # one step was made already
            learner._gradient[5] = np.inf
        return losses

    learner._backend.gradients = gradients
    metrics = learner.update([second], 0.0)
    assert metrics["undone"] == 1
    assert len(calls) == 2
    after = learner.state()
    assert after["normaliser"][2] == before["normaliser"][2] + 1, "it counts as an update"
    after["normaliser"][2] = before["normaliser"][2]
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name], err_msg=name)
    metrics = learner.update([second], 0.0)
    assert metrics["undone"] == 0
    assert not np.array_equal(learner.policy.vector(), before["policy"])


def test_a_learner_that_undoes_one_update_after_the_other_gives_up():
    learner, actor = toys.learner(toys.config()), toys.actor()
    samples = act(actor, learner)
    learner._backend.gradients = lambda *arguments: np.full(4, np.inf)
    for _ in range(UNDONE_IN_A_ROW):
        assert learner.update([samples], 0.0)["undone"] == 1
    with pytest.raises(NonFiniteError, match=f"after {UNDONE_IN_A_ROW} updates"):
        learner.update([samples], 0.0)


def job_lists(count):
    rng = np.random.default_rng(1234)
    for _ in range(count):
        arrivals = np.cumsum(rng.exponential(6.0, 8)) - 3.0
        yield Workload(
            tuple(
                Job(id=str(i), arrival_s=max(at, 0.0), stages=toys.LONG if long else toys.SHORT)
                for i, (at, long) in enumerate(zip(arrivals, rng.random(8) < 0.5, strict=True))
            )
        )


def test_a_policy_learns_to_serve_short_jobs_first_within_seconds():
    """Two-stage jobs of 2 s or 30 s on one executor: first come first served makes short ones wait.

    Fair is the same as fifo there: with one executor, there is nothing to share.
    """
    config, cluster = toys.config(environments=16, steps=64), Cluster(executors=1, move_delay_s=0.0)
    learner, actor = toys.learner(config), toys.actor(environments=16, steps=64)
    updates = 25
    for update in range(updates):
        metrics = learner.update([act(actor, learner)], update / updates)
    assert metrics["explained_variance"] > 0.5

    def mean_jct_s(scheduler):
        return np.mean([simulate(cluster, jobs, scheduler).mean_jct_s for jobs in job_lists(40)])

    learned = mean_jct_s(PolicyScheduler(learner.policy.vector()))
    fair, best = (mean_jct_s(parse_scheduler(s)) for s in ("fair", "srpt"))
    assert learned < 0.85 * fair
    assert learned < 0.85 * mean_jct_s(parse_scheduler("random"))
    assert learned < 1.1 * best


def gang_log(count=40):
    """Batch jobs of one to four executors and 1 to 9 s, of which the longest ask for 900 s."""
    return FileSource(
        "log",
        Workload(
            tuple(
                Job(
                    id=f"{i}",
                    arrival_s=1.5 * i,
                    stages=(
                        Stage(
                            id="x",
                            task_count=1 + i % 4,
                            durations=Pool((1.0 + 7 * i % 9,)),
                            gang=True,
                            limit_s=900.0 if 7 * i % 9 == 8 else 10.0,
                        ),
                    ),
                )
                for i in range(count)
            )
        ),
    )


@pytest.mark.parametrize("objective", ["mean", "slowdown"])
@pytest.mark.parametrize("messages", [False, True])
def test_training_on_a_log_of_gangs_moves_the_parameters_and_stays_finite(messages, objective):
    config = toys.config(
        executors=4, jobs=6, interarrival_s=None, objective=objective, messages=messages
    )
    learner = toys.learner(config)
    actor = Actor(config, training_table(config, gang_log()), 0)
    before = learner.policy.vector()
    for update in range(4):
        samples = act(actor, learner)
        rows, decisions = samples.rows, samples.decisions
        made = np.arange(len(decisions.chosen)) % (config.steps + 1) < config.steps
        first = rows.stage_pointer[:-1][made]
        demand = rows.stage_demand[first + decisions.chosen[made]]
        assert (demand <= rows.on_offer[made]).all(), "a gang that does not fit"
        assert demand.max() == 4
        metrics = learner.update([samples], update / 4)
        assert all(np.isfinite(value) for value in metrics.values()), metrics
    assert np.isfinite(learner.policy.vector()).all()
    assert np.abs(learner.policy.vector() - before).max() > 1e-3
