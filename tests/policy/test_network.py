"""The compiled policy and its torch reference say the same to 1e-5."""

import numpy as np
import pytest
import torch

from ganger.policy.forward import MASKED, limit_logits, new_scratch, stage_logits, weights_of
from ganger.policy.layout import aligned_zeros, blocks, initial_critic, initial_vector, vector_size
from ganger.policy.network import Critic, PolicyNetwork, TorchBatch
from ganger.simulator.table import build_table
from ganger.training.actor import Actor
from ganger.training.config import TrainConfig
from ganger.training.exchange import Parameters
from ganger.training.samples import Samples
from ganger.workload import Pool, Stage, synthetic_stages

TOLERANCE = 1e-5
torch.set_num_threads(1)  # batches are small, and threads that spin slow each other down
both = pytest.mark.parametrize("messages", [False, True])


@pytest.fixture(scope="module")
def table():
    return build_table(synthetic_stages(0, i) for i in range(20))


def random_vector(messages, scale=1.5, seed=0):
    """Weights that say something: not near uniform, and with biases."""
    rng = np.random.default_rng(seed)
    vector = aligned_zeros(vector_size(messages))
    vector[:] = initial_vector(rng, messages) * np.float32(scale)
    for block in blocks(messages):
        if block.name in ("stage_3", "limit_3"):
            vector[block.start : block.stop] *= 10
        if block.name.endswith("_bias"):
            vector[block.start : block.stop] = rng.normal(0, 0.1, block.stop - block.start)
    return vector


def acted(table, vector, *, messages, executors=10, steps=40, environments=3, jobs=6):
    config = TrainConfig(
        executors=executors,
        jobs=jobs,
        interarrival_s=1500 / executors,
        environments=environments,
        steps=steps,
        messages=messages,
        seed=executors,
    )
    return Samples([Actor(config, table, 0).act(Parameters(vector, 0)).samples])


@both
@pytest.mark.parametrize("executors", [1, 2, 7, 20, 21, 50, 200])
def test_log_probabilities_recorded_by_actors_are_those_of_torch(table, messages, executors):
    vector = random_vector(messages, seed=executors)
    samples = acted(table, vector, messages=messages, executors=executors)
    with torch.no_grad():
        output = PolicyNetwork(vector, messages=messages)(
            TorchBatch.of(samples.gather(samples.made))
        )
    recorded = samples.log_probability[:, :-1].reshape(-1)
    np.testing.assert_allclose(output.log_probability.numpy(), recorded, atol=TOLERANCE)
    assert recorded.min() < -0.1, "the policy had something to choose from"


@both
def test_every_logit_and_the_entropy_are_those_of_torch(table, messages):
    vector = random_vector(messages)
    samples = acted(table, vector, messages=messages, executors=30)
    network = PolicyNetwork(vector, messages=messages)
    weights = weights_of(vector, messages)
    rows = samples.rows
    scratch = new_scratch(64, 64 * 18, 18)
    compared = 0
    for d in samples.made[::12]:
        d = np.int64(d)
        stage_logits(weights, scratch, rows, d, messages)
        count = int(rows.stage_pointer[d + 1] - rows.stage_pointer[d])
        stages = scratch.logits[:count].copy()
        for chosen in np.flatnonzero(stages != MASKED):
            samples.chosen[d] = chosen
            limit_logits(weights, scratch, rows, d, np.int64(chosen), samples.levels[0], messages)
            limits = scratch.level_logits.copy()
            with torch.no_grad():
                batch = TorchBatch.of(samples.gather(np.array([d])))
                reference, *inner = network.stage_logits(batch)
                reference_limits = network.limit_logits(batch, *inner)[0].numpy()
                entropy = float(network(batch).entropy[0])
            legal = limits != MASKED
            choice = stages != MASKED
            for mine, theirs in (
                (stages[choice], reference.numpy()[choice]),
                (limits[legal], reference_limits[legal]),
            ):
                np.testing.assert_allclose(mine, theirs, rtol=TOLERANCE, atol=TOLERANCE)
            assert (reference_limits[~legal] < -1000).all()
            assert (reference.numpy()[~choice] < -1000).all()
            expected = 0.0
            for logits in (stages[choice], limits[legal]):
                p = np.exp(logits - logits.max(), dtype=np.float64)
                p /= p.sum()
                expected -= (p * np.log(p)).sum()
            assert entropy == pytest.approx(expected, abs=1e-4)
            compared += 1
    assert compared > 15


@both
def test_parity_holds_for_wide_and_deep_jobs(messages):
    def pool(name, after=(), tasks=3):
        return Stage(id=name, parents=after, task_count=tasks, durations=Pool((1.0, 5.0)))

    wide = (pool("0"), *(pool(str(i), ("0",)) for i in range(1, 60)),
            pool("60", tuple(str(i) for i in range(1, 60))))  # fmt: skip
    deep = tuple(pool(str(i), (str(i - 1),) if i else ()) for i in range(40))
    dense = tuple(pool(str(i), tuple(str(p) for p in range(i))) for i in range(12))
    single = (pool("0", tasks=1),)
    table = build_table([wide, deep, dense, single])
    vector = random_vector(messages)
    samples = acted(table, vector, messages=messages, executors=9, jobs=8)
    with torch.no_grad():
        output = PolicyNetwork(vector, messages=messages)(
            TorchBatch.of(samples.gather(samples.made))
        )
    np.testing.assert_allclose(
        output.log_probability.numpy(),
        samples.log_probability[:, :-1].reshape(-1),
        atol=TOLERANCE,
    )


@both
def test_the_parameters_are_views_of_one_vector_and_learn_in_place(messages):
    vector = random_vector(messages)
    network = PolicyNetwork(vector, messages=messages)
    before = network.vector()
    np.testing.assert_array_equal(before, vector)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 1
    changed = network.vector()
    assert not np.shares_memory(changed, network.flat)
    count = sum(parameter.numel() for parameter in network.parameters())
    assert (changed != before).sum() == count
    np.testing.assert_array_equal(changed, vector)


def test_changing_the_critics_normalisation_does_not_change_what_it_says(table):
    vector = random_vector(False)
    samples = acted(table, vector, messages=False, environments=1, steps=20)
    batch = TorchBatch.of(samples.gather(samples.made))
    critic = Critic(initial_critic(np.random.default_rng(3)))
    before = critic.value(batch)
    critic.renormalise(-300.0, 45.0)
    critic.renormalise(12.0, 0.5)
    torch.testing.assert_close(critic.value(batch), before, atol=1e-3, rtol=1e-4)
    assert critic.mean == 12.0


def test_the_policy_does_not_see_the_arrivals_to_come(table):
    """Else a trained policy could not be used where nobody knows them."""
    vector = random_vector(False)
    samples = acted(table, vector, messages=False, environments=1, steps=20)
    network = PolicyNetwork(vector, messages=False)
    batch = samples.gather(samples.made)
    with torch.no_grad():
        before = network(TorchBatch.of(batch)).log_probability
        batch.globals[:, 10:] += 1.0
        after = network(TorchBatch.of(batch)).log_probability
    assert torch.equal(before, after)
