"""One simulated cluster as a Gymnasium environment."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from ganger.errors import ConfigError
from ganger.gym.clusters import ClusterGroup, Observation, Setting
from ganger.simulator.simulate import CompiledScheduler


class ClusterEnv(gymnasium.Env[Any, Any]):
    """A cluster that asks which stage to serve, up to how many executors of its job.

    Args:
        render_mode: "ansi": `render` gives one line.
        setting: the fields of `clusters.Setting`.

    Raises:
        GangerError: the setting or the workload is wrong; the message says what would work.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  # as Gymnasium has it

    def __init__(self, render_mode: str | None = None, **setting: Any) -> None:
        self.render_mode = _render_mode(render_mode)
        self._group = ClusterGroup(1, setting_of(setting))
        self.observation_space = self._group.observation_space
        self.action_space = self._group.action_space
        self._running = False

    @property
    def limits(self) -> NDArray[np.int32]:
        """Action a serves the stage in row a // len(limits), up to limits[a % len(limits)]."""
        return self._group.limits[self._group.limits > 0]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode: the next one of the seed's, or the first one of a new seed's."""
        super().reset(seed=seed)
        self._group.begin(0, self.np_random)
        self._running = True
        observation, _, _, _, info = self._step(0)
        return observation, info

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take an action and go on to the next decision.

        Raises:
            SimulationError: the action is not in the action space.
            ResetNeeded: the episode has ended, or none has begun.
        """
        if not self._running:
            raise ResetNeeded("no episode is running: call reset() first")
        return self._step(action)

    def _step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        group = self._group
        group.step(np.asarray(action).reshape(-1))
        done = bool(group.done[0])
        info = {name: value[0] for name, value in group.info().items()}
        if done:
            self._running = False
            info["mean_jct_s"] = float(group.mean_jct_s[0])
        observation = {name: value[0] for name, value in group.observation().items()}
        return observation, float(group.reward[0]), done, False, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions are legal now, [actions]: what MaskablePPO of SB3-contrib asks for."""
        mask: NDArray[np.bool_] = self._group.mask[0]
        return mask

    def render(self) -> str | None:
        """The cluster in one line."""
        return self._group.line(0) if self.render_mode == "ansi" else None

    def mean_jct_under(self, scheduler: CompiledScheduler) -> float:
        """Mean job completion time of this episode, from its start, under another scheduler.

        The jobs and the luck of their tasks are the same, so it can be compared with
        `info["mean_jct_s"]` at the episode's end. The episode itself does not change.
        """
        return self._group.mean_jct_under(scheduler, 0)


def setting_of(given: dict[str, Any]) -> Setting:
    """The setting from keyword arguments.

    Raises:
        ConfigError: one is unknown; the message lists what there is.
    """
    if unknown := given.keys() - set(Setting._fields):
        raise ConfigError(
            f"setting {sorted(unknown)[0]!r} is unknown; there are {', '.join(Setting._fields)}"
        )
    return Setting(**given)


def _render_mode(mode: str | None) -> str | None:
    if mode not in (None, "ansi"):
        raise ConfigError(f"render_mode is {mode!r}; expected ansi or None")
    return mode
