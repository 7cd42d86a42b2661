"""Many simulated clusters as one Gymnasium vector environment, stepped by one compiled call."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ganger.errors import ConfigError
from ganger.gym.clusters import ClusterGroup, Observation, new_rng
from ganger.gym.single import setting_of


class ClusterVectorEnv(VectorEnv[Observation, Any, Any]):
    """`num_envs` clusters of one setting; cluster i of seed s is a `ClusterEnv` of seed s + i.

    The autoreset mode is Gymnasium's NEXT_STEP: the step after an episode's end ignores the
    action there, begins the next episode and gives reward 0.

    Args:
        num_envs: how many, 1 or more.
        setting: the fields of `clusters.Setting`.

    Raises:
        GangerError: the setting or the workload is wrong; the message says what would work.
    """

    metadata = {  # noqa: RUF012  # as Gymnasium has it
        "render_modes": [],
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(self, num_envs: int = 1, **setting: Any) -> None:
        if num_envs < 1:
            raise ConfigError(f"num_envs is {num_envs}; expected 1 or more")
        render_mode = setting.pop("render_mode", None)  # Gymnasium hands it on
        if render_mode is not None:
            raise ConfigError(f"render_mode is {render_mode!r}; a vector environment has none")
        self.num_envs = num_envs
        self._group = ClusterGroup(num_envs, setting_of(setting))
        self.single_observation_space = self._group.observation_space
        self.single_action_space = self._group.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rngs: list[np.random.Generator] = []

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode in every cluster; seeds as for Gymnasium's own vector environments.

        Raises:
            ConfigError: not one seed for each cluster.
        """
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + i for i in range(self.num_envs)]
        seeds = [None] * self.num_envs if seed is None else list(seed)
        if len(seeds) != self.num_envs:
            raise ConfigError(f"{len(seeds)} seeds for {self.num_envs} clusters; expected as many")
        fresh = not self._rngs
        self._rngs = [
            new_rng(one)[0] if fresh or one is not None else self._rngs[i]
            for i, one in enumerate(seeds)
        ]
        for i, rng in enumerate(self._rngs):
            self._group.begin(i, rng)
        self._group.step(np.zeros(self.num_envs, np.int64))
        return self._group.observation(), self._info(self._group.done)

    def step(self, actions: Any) -> tuple[Observation, Any, Any, Any, dict[str, Any]]:
        """Take an action in every cluster; all arrays are [num_envs, ...].

        Raises:
            SimulationError: an action is not in the action space.
            ResetNeeded: no episode has begun.
        """
        if not self._rngs:
            raise ResetNeeded("no episode is running: call reset() first")
        group = self._group
        for i in np.flatnonzero(group.done).tolist():
            group.begin(i, self._rngs[i])
        group.step(np.asarray(actions))
        done = group.done
        return group.observation(), group.reward, done, np.zeros_like(done), self._info(done)

    def _info(self, done: NDArray[np.bool_]) -> dict[str, Any]:
        info: dict[str, Any] = {}
        for name, values in self._group.info().items():
            info[name], info["_" + name] = values, np.ones(self.num_envs, bool)
        if done.any():
            info["mean_jct_s"] = np.where(done, self._group.mean_jct_s, 0.0)
            info["_mean_jct_s"] = done.copy()
        return info

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions are legal now, [num_envs, actions]."""
        return self._group.mask
