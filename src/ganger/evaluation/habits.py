"""How a policy usually decides: its decisions over an episode, by the job's size and the offer."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.evaluation.summary import class_name, size_classes


class Sample(NamedTuple):
    """One decision."""

    work_s: float
    """Estimated executor-seconds that the chosen stage's job had left."""
    on_offer: int
    """Executors to decide about."""
    limit: int
    given: int
    """Executors on offer that the stage got."""
    could_use: int
    """Executors on offer that the stage could use."""
    jobs: int
    """That could be chosen."""
    least_work: bool
    """Whether the job was one with the least work left of these."""
    could_stay: bool
    """Whether the job that the executors came from could be chosen."""
    stays: bool
    """Whether it was."""


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """Decisions over an episode. Tables are [work class][offer class]; without decisions, None."""

    decisions: int
    executors: int
    work: tuple[str, ...]
    """Classes of the work that the chosen job had left, executor-seconds, ascending."""
    on_offer: tuple[str, ...]
    """Classes of the executors on offer, ascending."""
    count: tuple[tuple[int, ...], ...]
    mean_limit: tuple[tuple[float | None, ...], ...]
    """Of several limits that give the same executors a policy knows the smallest only: where a
    stage can use few executors, limits are small."""
    mean_given: tuple[tuple[float | None, ...], ...]
    """Executors on offer that the chosen stage got."""
    limit_by_work: tuple[float, ...]
    """Mean over all offers, of each work class."""
    limit_by_offer: tuple[float, ...]
    """Mean over all jobs, of each offer class."""
    shortest: float | None
    """Share of decisions between several jobs that chose one with the least work left."""
    stays: float | None
    """Share of decisions where executors could stay with their job, or go to another, and
    stayed."""
    all_of_use: float
    """Share of decisions where the stage got all that it could use of the executors on offer: the
    limit held nothing back."""

    def paragraph(self) -> str:
        """The same in words."""
        said = [f"Over {self.decisions:,} decisions:"]
        if self.shortest is None:
            said.append("there was never more than one job to choose from.")
        else:
            said.append(
                f"between several jobs, it chose one with the least work left in "
                f"{self.shortest:.0%} of cases."
            )
        if self.stays is not None:
            said.append(
                f"Executors that could stay with their job or go to another stayed in "
                f"{self.stays:.0%}."
            )
        said.append(
            f"In {self.all_of_use:.0%}, the stage got all that it could use of the offer: the "
            "limit held nothing back."
        )
        said.append(
            "The mean limit " + _trend(self.limit_by_work, self.work, "executor-seconds left")
        )
        said.append("It " + _trend(self.limit_by_offer, self.on_offer, "executors on offer"))
        return " ".join(said)


def habits_of(samples: Sequence[Sample], executors: int) -> Habits:
    """What is usual in these decisions, of which there is at least one."""
    work_s, on_offer, limit, given, could_use, jobs, least, could_stay, stays = (
        np.array(column) for column in zip(*samples, strict=True)
    )
    work_classes = size_classes(work_s)
    offer_classes = np.floor(np.log2(on_offer)).astype(np.int64)
    works, offers = np.unique(work_classes), np.unique(offer_classes)

    def table(of: Callable[[NDArray[np.bool_]], object]) -> tuple[tuple[object, ...], ...]:
        return tuple(
            tuple(of((work_classes == work) & (offer_classes == offer)) for offer in offers)
            for work in works
        )

    def mean_of(values: NDArray[np.int64]) -> Callable[[NDArray[np.bool_]], float | None]:
        return lambda where: float(values[where].mean()) if where.any() else None

    def share(of: NDArray[np.bool_], where: NDArray[np.bool_]) -> float | None:
        return float(of[where].mean()) if where.any() else None

    return msgspec.convert(
        {
            "decisions": len(samples),
            "executors": executors,
            "work": [class_name(int(work)) for work in works],
            "on_offer": [_offer_name(int(offer), executors) for offer in offers],
            "count": table(lambda where: int(where.sum())),
            "mean_limit": table(mean_of(limit)),
            "mean_given": table(mean_of(given)),
            "limit_by_work": [float(limit[work_classes == work].mean()) for work in works],
            "limit_by_offer": [float(limit[offer_classes == offer].mean()) for offer in offers],
            "shortest": share(least, jobs > 1),
            "stays": share(stays, could_stay & (jobs > 1)),
            "all_of_use": float((given == could_use).mean()),
        },
        Habits,
    )


def _offer_name(power: int, executors: int) -> str:
    low, high = 2**power, min(2 ** (power + 1) - 1, executors)
    return f"{low:,}" if low >= high else f"{low:,} to {high:,}"


def _trend(means: Sequence[float], classes: Sequence[str], unit: str) -> str:
    """How a mean goes from the first class to the last."""
    first, last = means[0], means[-1]
    if len(means) == 1:
        return f"is {first:.1f}; it was always {classes[0]} {unit}."
    changes = last > 1.1 * first or last < first / 1.1
    way = ("rises" if last > first else "falls") if changes else "hardly changes:"
    back = changes and any((b - a) * (last - first) < 0 for a, b in pairwise(means))
    steps = ", not at every step," if back else ""
    return f"{way}{steps} from {first:.1f} ({classes[0]}) to {last:.1f} ({classes[-1]} {unit})."
