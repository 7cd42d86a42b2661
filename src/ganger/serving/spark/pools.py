"""The FAIR pools that jobs are put into, by rank, and which of them a new job belongs in.

Spark reads its pools when the application starts, and a job keeps its pool. So all pools that may
be wanted are there from the start: some ranks, and in each rank lanes.

- Jobs of a better rank go first. Spark serves pools that have less than their minShare before all
  others, and among these whichever has the least of its minShare; these are 1000 apart. Hence the
  last rank yields to all others completely, and each of the others keeps one executor.
- Lanes of one rank share equally.
- In one lane, jobs are served in the order in which they were submitted.
"""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

MIN_SHARES = (10**9, 10**6, 10**3, 0)
"""By rank; Spark takes whole numbers below 2**31."""
LANES = 8
DEFAULT_MIN_SHARE = MIN_SHARES[0]
"""Of the pool `default`, where unmarked jobs are: they are never let wait for ours."""


class Pool(NamedTuple):
    """A lane of a rank; rank 0 is the best."""

    rank: int
    lane: int

    @property
    def name(self) -> str:
        """As the pools file has it."""
        return f"ganger-{self.rank}-{self.lane}"


LAST = len(MIN_SHARES) - 1


def choose(*, before: Collection[Pool], beside: Collection[Pool], behind: Collection[Pool]) -> Pool:
    """Where a job belongs that is about to be submitted.

    Args:
        before: pools of the jobs that are to be served first.
        beside: of those that it is to share with.
        behind: of those that it is to be let past.
    """
    taken = Counter([*before, *beside, *behind])
    if beside:
        return _lane(min(beside).rank, taken)
    if not behind:
        last = max(before, default=None)
        return last if last is not None and last.rank == LAST else _lane(LAST, taken)
    rank = max(min(behind).rank - 1, 0)
    if before and max(before).rank >= rank:
        return max(before)  # there, it is served after them; that may let some of `behind` go first
    return _lane(rank, taken)


def _lane(rank: int, taken: Counter[Pool]) -> Pool:
    """The one with the fewest jobs."""
    return min((Pool(rank, lane) for lane in range(LANES)), key=lambda pool: taken[pool])


def pools_file() -> str:
    """What Spark is to read as `spark.scheduler.allocation.file`."""
    pools = [("default", DEFAULT_MIN_SHARE)]
    pools += [
        (Pool(rank, lane).name, share)
        for rank, share in enumerate(MIN_SHARES)
        for lane in range(LANES)
    ]
    lines = [
        f'  <pool name="{name}"><schedulingMode>FIFO</schedulingMode>'
        f"<weight>1</weight><minShare>{share}</minShare></pool>"
        for name, share in pools
    ]
    return "\n".join(['<?xml version="1.0"?>', "<allocations>", *lines, "</allocations>", ""])


def write_pools(path: Path) -> dict[str, str]:
    """Write the pools file; the settings that make Spark read it.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(pools_file(), encoding="utf-8")
    return {
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": path.absolute().as_uri(),
    }
