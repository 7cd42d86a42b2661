"""The compiled losses and gradients are those of torch, decision for decision and in sum."""

import numpy as np
import pytest
import torch

from ganger.policy.layout import (
    aligned_zeros,
    blocks,
    critic_blocks,
    initial_critic,
    initial_vector,
    vector_size,
)
from ganger.policy.network import Critic, PolicyNetwork, TorchBatch
from ganger.simulator.table import build_table
from ganger.training.actor import Actor
from ganger.training.backend import CompiledBackend, TorchBackend, Wanted, Weighting
from ganger.training.config import TrainConfig
from ganger.training.exchange import Parameters
from ganger.training.samples import Samples
from ganger.workload import Pool, Stage, synthetic_stages


def random_vector(scale=1.5, seed=0):
    rng = np.random.default_rng(seed)
    flat = aligned_zeros(vector_size(False))
    flat[:] = initial_vector(rng, False) * np.float32(scale)
    critic = initial_critic(rng) * np.float32(scale)
    for vector, placed in ((flat, blocks(False)), (critic, critic_blocks())):
        for block in placed:
            if block.name in ("stage_3", "limit_3", "critic_3"):
                vector[block.start : block.stop] *= 10
            if block.name.endswith("_bias"):
                vector[block.start : block.stop] = rng.normal(0, 0.1, block.stop - block.start)
    return flat, critic


def wide_job():
    stages = [Stage(id="0", parents=(), task_count=2, durations=Pool((1.0,)))]
    stages += [
        Stage(id=str(i), parents=("0",), task_count=1 + i % 3, durations=Pool((2.0, 5.0)))
        for i in range(1, 700)
    ]
    return tuple(stages)


def acted(vector, executors, stages=None, **settings):
    table = build_table(stages or [synthetic_stages(0, i) for i in range(20)])
    given = {"jobs": 8, "environments": 3, "steps": 40, "interarrival_s": 1500 / executors}
    config = TrainConfig(executors=executors, seed=executors, **(given | settings))
    samples = Samples([Actor(config, table, 0).act(Parameters(vector, 0)).samples])
    return samples


def backends(policy_vector, critic_vector, threads=2):
    made = []
    for cls, extra in ((TorchBackend, ()), (CompiledBackend, (threads,))):
        policy = PolicyNetwork(policy_vector.copy(), messages=False)
        critic = Critic(critic_vector.copy())
        gradient = aligned_zeros(len(policy_vector) + len(critic_vector))
        made.append((cls(policy, critic, gradient, *extra), gradient))
    return made


@pytest.mark.parametrize(
    ("executors", "settings"),
    [(1, {}), (3, {}), (10, {}), (50, {}), (7, {"stages": [wide_job()], "jobs": 3, "steps": 20})],
)
def test_the_compiled_backend_is_torchs(executors, settings):
    policy_vector, critic_vector = random_vector(seed=executors)
    behaviour, _ = random_vector(seed=executors + 100)
    samples = acted(behaviour, executors, **settings)
    (torch_backend, torch_gradient), (mine, gradient) = backends(policy_vector, critic_vector)
    log_p, value = mine.look(samples)
    torch_log_p, torch_value = torch_backend.look(samples)
    made = samples.made  # the others have no action
    np.testing.assert_allclose(log_p[made], torch_log_p[made], atol=2e-5, rtol=1e-5)
    np.testing.assert_allclose(value, torch_value, atol=2e-5, rtol=1e-5)

    rng = np.random.default_rng(executors)
    index = rng.permutation(samples.made)[:101]  # not a multiple of any block
    wanted = Wanted(
        rng.normal(0, 1, len(index)).astype(np.float32),
        (value[index] + rng.normal(0, 3, len(index))).astype(np.float32),  # some beyond the clamp
        (log_p[index] + rng.normal(0, 0.3, len(index))).astype(np.float32),  # some clipped
        rng.random(len(index)).astype(np.float32),
    )
    wanted.start[:8] -= 2.0  # ratios of more than 3
    weighting = Weighting(clip=0.2, value=0.5, entropy=0.03)
    sums = mine.gradients(samples, index, wanted, weighting)
    torch_sums = torch_backend.gradients(samples, index, wanted, weighting)
    np.testing.assert_allclose(sums, torch_sums, rtol=1e-4, atol=1e-5)
    placed = [(b.name, b.start, b.stop) for b in blocks(False)]
    placed += [
        (b.name, len(policy_vector) + b.start, len(policy_vector) + b.stop) for b in critic_blocks()
    ]
    overall = np.abs(torch_gradient[: len(policy_vector)]).max()
    for name, start, stop in placed:
        largest = np.abs(torch_gradient[start:stop]).max()
        # Hundreds of stages add up to next to nothing, and float32 keeps the sum's order in mind.
        tolerance = 5e-3 if "stages" in settings else 1e-4
        np.testing.assert_allclose(
            gradient[start:stop],
            torch_gradient[start:stop],
            atol=tolerance * (largest + overall),
            err_msg=name,
        )
        if executors > 1 and not name.startswith(("message", "job_1_m", "stage_1_m", "limit_1_m")):
            assert largest > 0, name


def test_the_number_of_threads_does_not_change_a_bit():
    policy_vector, critic_vector = random_vector()
    samples = acted(policy_vector, 10)
    rng = np.random.default_rng(0)
    index = samples.made[:77]
    wanted = Wanted(*rng.normal(0, 1, (4, len(index))).astype(np.float32))
    seen = []
    for threads in (1, 2, 5):
        _, (mine, gradient) = backends(policy_vector, critic_vector, threads)
        looked = mine.look(samples)
        sums = mine.gradients(samples, index, wanted, Weighting(0.2, 0.5, 0.01))
        seen.append((*looked, sums, gradient.copy()))
    for other in seen[1:]:
        for a, b in zip(seen[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("cls", [TorchBackend, CompiledBackend])
def test_probabilities_that_rose_out_of_all_proportion_pull_no_harder_than_others(cls):
    policy_vector, critic_vector = random_vector()
    samples = acted(policy_vector, 10)
    policy, critic = PolicyNetwork(policy_vector, messages=False), Critic(critic_vector)
    gradient = aligned_zeros(len(policy_vector) + len(critic_vector))
    backend = cls(policy, critic, gradient)
    log_p, value = backend.look(samples)
    index = samples.made[:40]
    advantage = np.where(np.arange(40) % 2, 1.0, -1.0).astype(np.float32)
    seen = []
    for rise in (0.0, 9.0, 200.0):
        start = log_p[index].copy()
        start[10:14] -= np.float32(rise)
        wanted = Wanted(advantage, value[index], start, np.ones(40, np.float32))
        losses = backend.gradients(samples, index, wanted, Weighting(0.2, 0.5, 0.0))
        assert np.isfinite(losses).all()
        assert np.isfinite(gradient).all()
        seen.append((losses[0], np.linalg.norm(gradient)))
    (plain, norm), *risen = seen
    for loss, other in risen:
        # Of these four, two were better than expected (1.2 at most), two worse (3 at most).
        assert loss == pytest.approx(plain + (2 * 2.0 - 2 * 0.2) / 40, abs=1e-4)
        assert other < 2 * norm
    backend.close()


@pytest.mark.parametrize("cls", [TorchBackend, CompiledBackend])
def test_what_all_logits_have_in_common_is_pulled_back(cls):
    policy_vector, critic_vector = random_vector()
    samples = acted(policy_vector, 10)
    policy, critic = PolicyNetwork(policy_vector, messages=False), Critic(critic_vector)
    gradient = aligned_zeros(len(policy_vector) + len(critic_vector))
    backend = cls(policy, critic, gradient)
    for block in blocks(False):  # every unit of the last hidden layers pushes all logits alike
        if block.name in ("stage_2_bias", "limit_2_bias"):
            policy.flat[block.start : block.stop] += 10
        if block.name in ("stage_3", "limit_3"):
            policy.flat[block.start : block.stop] += 1
    log_p, value = backend.look(samples)
    index = samples.made[:60]
    batch = TorchBatch.of(samples.gather(index))
    none = np.zeros(len(index), np.float32)
    wanted = Wanted(none, value[index], log_p[index], none + 1)
    offsets = []
    for _ in range(40):
        with torch.no_grad():
            offsets.append(float(policy(batch).squared_offset.mean()))
        backend.gradients(samples, index, wanted, Weighting(0.2, 0.5, 0.0))
        policy.flat[:] -= 0.2 * gradient[: len(policy_vector)]
    assert offsets[0] > 1e5
    assert offsets[-1] < 1e-2 * offsets[0]


def test_what_may_not_be_chosen_has_no_probability_however_low_the_rest_is():
    policy_vector, critic_vector = random_vector()
    samples = acted(policy_vector, 10)
    for block in blocks(False):
        if block.name in ("stage_3", "limit_3"):
            policy_vector[block.start : block.stop] = -3e4
    (torch_backend, _), (mine, _) = backends(policy_vector, critic_vector)
    log_p, _ = mine.look(samples)
    torch_log_p, _ = torch_backend.look(samples)
    assert log_p[samples.made].min() < -1e3
    np.testing.assert_allclose(torch_log_p[samples.made], log_p[samples.made], rtol=1e-3, atol=1)
