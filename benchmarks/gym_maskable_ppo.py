"""MaskablePPO of SB3-contrib learning in the Gymnasium environment, and the environments' speed.

    python benchmarks/gym_maskable_ppo.py [--minutes M] [--seed N] [--lists N]

Trains on a small cluster and compares mean job completion times on lists it has never seen, from
the other split of the workload: before and after, beside fair sharing, shortest remaining work
first and random decisions on the very same lists with the same luck. docs/gym.md has the output.
"""

import argparse
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import Tensor, nn

from ganger.evaluation.episodes import usable_cores
from ganger.gym import ENVIRONMENT_ID
from ganger.schedulers import parse_scheduler

SMALL = {"executors": 5, "jobs": 6, "interarrival_s": 60.0, "max_stages": 16, "max_jobs": 6}
LARGE = {"executors": 50, "jobs": 50, "interarrival_s": 25.0, "max_stages": 256, "max_jobs": 50}
BASELINES = ("random", "fair", "srpt")
HELD_OUT_SEED = 1_000_000


class SameForEveryStage(BaseFeaturesExtractor):
    """Logits of all actions, then a value: one network looks at each stage, its job, the whole."""

    def __init__(self, space: spaces.Dict, limits: int, width: int = 32) -> None:
        self.rows = space["stages"].shape[0]
        super().__init__(space, self.rows * limits + 1)
        of_stage, of_job = space["stages"].shape[1], space["jobs"].shape[1]
        of_whole = space["globals"].shape[0]
        self.job = nn.Sequential(nn.Linear(of_job, width), nn.ReLU(), nn.Linear(width, width))
        self.whole = nn.Sequential(nn.Linear(width + of_whole, width), nn.ReLU())
        self.actions = nn.Sequential(
            nn.Linear(of_stage + of_job + width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, limits),
        )
        self.value = nn.Linear(width, 1)

    def forward(self, seen: dict[str, Tensor]) -> Tensor:
        stages, jobs = seen["stages"], seen["jobs"]
        is_job = torch.arange(jobs.shape[1]) < seen["counts"][:, 1:2]
        summed = (self.job(jobs) * is_job[:, :, None]).sum(1) / 4
        whole = self.whole(torch.cat([summed, seen["globals"]], 1))
        place = seen["stage_job"].long()[:, :, None].expand(-1, -1, jobs.shape[2])
        of_each = [stages, jobs.gather(1, place), whole[:, None].expand(-1, self.rows, -1)]
        return torch.cat([self.actions(torch.cat(of_each, 2)).flatten(1), self.value(whole)], 1)


class Part(nn.Module):
    """Some of the columns."""

    def __init__(self, columns: slice) -> None:
        super().__init__()
        self.columns = columns

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.columns]


class SlotPolicy(MaskableMultiInputActorCriticPolicy):
    """The extractor gives logits and value; the heads only take them apart."""

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.action_net, self.value_net = Part(slice(0, -1)), Part(slice(-1, None))
        self.optimizer = self.optimizer_class(
            self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs
        )


class UntilTime(BaseCallback):
    """Stops training when the time is up."""

    def __init__(self, minutes: float) -> None:
        super().__init__()
        self.until = time.perf_counter() + 60 * minutes

    def _on_step(self) -> bool:
        return time.perf_counter() < self.until


def held_out(lists: int) -> Any:
    """(environment, observation) at the start of each held-out list."""
    env = gymnasium.make(ENVIRONMENT_ID, split="test", **SMALL).unwrapped
    for k in range(lists):
        yield env, env.reset(seed=HELD_OUT_SEED + k)[0]


def mean_jct_s(model: MaskablePPO, lists: int) -> np.ndarray:
    """Of each held-out list under the policy's most probable actions."""
    found = []
    for env, start in held_out(lists):
        observation, done = start, False
        while not done:
            action, _ = model.predict(
                observation, deterministic=True, action_masks=env.action_masks()
            )
            observation, _, done, _, info = env.step(action)
        found.append(info["mean_jct_s"])
    return np.array(found)


def report(name: str, jct_s: np.ndarray, fair_s: np.ndarray) -> None:
    ratio = jct_s / fair_s
    error = ratio.std(ddof=1) / np.sqrt(len(ratio))
    print(f"{name:28} {jct_s.mean():7.1f} s   {ratio.mean():.3f} +- {error:.3f} of fair's")


def single_steps_per_s(setting: dict[str, Any], seconds: float) -> float:
    """Steps/s of one environment, with random legal actions; drawing them is not counted."""
    env = gymnasium.make(ENVIRONMENT_ID, **setting).unwrapped
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=0)
    steps, spent = 0, 0.0
    while spent < seconds:
        action = rng.choice(np.flatnonzero(info["action_mask"]))
        begin = time.perf_counter()
        _, _, done, _, info = env.step(action)
        if done:
            _, info = env.reset()
        spent += time.perf_counter() - begin
        steps += 1
    return steps / spent


def vector_steps_per_s(setting: dict[str, Any], seconds: float, count: int) -> float:
    """Steps/s of all clusters of a vector environment together, likewise."""
    envs = gymnasium.make_vec(ENVIRONMENT_ID, num_envs=count, **setting)
    rng = np.random.default_rng(0)
    _, info = envs.reset(seed=0)
    steps, spent = 0, 0.0
    while spent < seconds:
        mask = info["action_mask"]
        actions = (rng.random(mask.shape, np.float32) * mask).argmax(1)
        begin = time.perf_counter()
        _, _, _, _, info = envs.step(actions)
        spent += time.perf_counter() - begin
        steps += count
    return steps / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="of training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lists", type=int, default=50, help="held-out job lists")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{usable_cores()} cores, seed {given.seed}")
    print("steps/s with random legal actions    one environment   64 in a vector")
    for name, setting in (("5 executors, 6 jobs", SMALL), ("50 executors, 50 jobs", LARGE)):
        single = single_steps_per_s(setting, 3.0)
        print(f"{name:36} {single:15,.0f} {vector_steps_per_s(setting, 3.0, 64):16,.0f}")

    base: dict[str, list[float]] = {name: [] for name in BASELINES}
    for env, _ in held_out(given.lists):
        for name in BASELINES:
            base[name].append(env.mean_jct_under(parse_scheduler(name)))
    fair_s = np.array(base["fair"])
    print(f"\nmean JCT on {given.lists} held-out lists, 5 executors, 6 jobs")
    for name in BASELINES:
        report(name, np.array(base[name]), fair_s)

    train = VecNormalize(
        DummyVecEnv([lambda: gymnasium.make(ENVIRONMENT_ID, **SMALL) for _ in range(16)]),
        norm_obs=False,
        gamma=0.99,
    )
    limits = train.action_space.n // SMALL["max_stages"]
    model = MaskablePPO(
        SlotPolicy,
        train,
        n_steps=256,
        batch_size=512,
        n_epochs=6,
        gamma=0.99,
        gae_lambda=0.95,
        learning_rate=2e-3,
        ent_coef=0.005,
        seed=given.seed,
        policy_kwargs={
            "net_arch": [],
            "features_extractor_class": SameForEveryStage,
            "features_extractor_kwargs": {"limits": limits},
        },
    )
    report("MaskablePPO, untrained", mean_jct_s(model, given.lists), fair_s)
    model.learn(10**9, callback=UntilTime(given.minutes))
    name = f"MaskablePPO, {model.num_timesteps:,} steps"
    report(name, mean_jct_s(model, given.lists), fair_s)
    print(f"trained for {given.minutes:g} minutes")


if __name__ == "__main__":
    main()
