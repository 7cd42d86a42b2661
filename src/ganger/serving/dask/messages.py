"""What the plugin and the agent tell each other, as msgpack in the scheduler's own RPC."""

import msgspec

from ganger.serving.records import SeenJob
from ganger.simulator.observation import Decision, Observation


class StageTimes(msgspec.Struct, frozen=True, array_like=True):
    """What is known of how long a stage's tasks take."""

    job: str
    stage: str
    name: str
    """Under which its durations are remembered."""
    finished: int
    total_s: float


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """The answer to `ganger_observe`."""

    version: int
    shadow: bool
    """Nothing is held back, and nothing that is answered is done."""
    observation: Observation | None = None
    """A round that waits for an answer; estimates are not filled in."""
    times: tuple[StageTimes, ...] = ()
    ended: tuple[SeenJob, ...] = ()
    """Jobs that have ended and that the agent has not confirmed yet."""
    ended_before: int = 0
    """Number of the first of them; the agent confirms by asking from the next one on."""
    counts: dict[str, int] = {}
    """What happened since the scheduler started that is not routine."""


class Act(msgspec.Struct, frozen=True, array_like=True):
    """What `ganger_act` is called with."""

    version: int
    decisions: tuple[Decision, ...]
