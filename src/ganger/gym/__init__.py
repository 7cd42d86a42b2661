"""Ganger's simulator as a Gymnasium environment, for other libraries' algorithms.

    import gymnasium
    import ganger.gym  # registers the environment

    env = gymnasium.make("Ganger/Cluster-v0", executors=10)
    environments = gymnasium.make_vec("Ganger/Cluster-v0", num_envs=64, executors=10)

What is observed, which actions there are and what the reward is: docs/gym.md.
"""

from typing import TYPE_CHECKING, Any

from ganger.errors import MissingExtraError

try:
    import gymnasium
except ImportError:
    raise MissingExtraError("ganger.gym", "gym") from None

__all__ = ["ENVIRONMENT_ID", "ClusterEnv", "ClusterVectorEnv"]

ENVIRONMENT_ID = "Ganger/Cluster-v0"
"""Its version changes whenever the same seed and actions no longer give the same numbers."""

if ENVIRONMENT_ID not in gymnasium.registry:
    gymnasium.register(
        ENVIRONMENT_ID,
        entry_point="ganger.gym.single:ClusterEnv",
        vector_entry_point="ganger.gym.vector:ClusterVectorEnv",
    )


def __getattr__(name: str) -> Any:
    """Import the classes when they are asked for: they bring the compiler along."""
    if name == "ClusterEnv":
        from ganger.gym.single import ClusterEnv

        return ClusterEnv
    if name == "ClusterVectorEnv":
        from ganger.gym.vector import ClusterVectorEnv

        return ClusterVectorEnv
    raise AttributeError(f"module 'ganger.gym' has no attribute {name!r}")


if TYPE_CHECKING:
    from ganger.gym.single import ClusterEnv
    from ganger.gym.vector import ClusterVectorEnv
