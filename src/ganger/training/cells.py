"""The cells of a run: clusters of some size under some load, and how far decisions reach in each.

One policy may be trained on several at once. What a job costs differs a hundredfold between an idle
cluster and an overloaded one, so every cell has time scales of its own, and a unit of cost.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger import streams
from ganger.evaluation.compare import BASELINE
from ganger.evaluation.episodes import JobLists
from ganger.simulator.simulate import Cluster
from ganger.training.config import TrainConfig
from ganger.workload import JobSource

_LISTS = 8
_DISCOUNT_PER_ROOT_JCT, _LAMBDA_SHARE = 25.0, 0.15


class Cells(NamedTuple):
    """What the learner needs to know of each cell; arrays of [cells]."""

    executors: NDArray[np.int32]
    discount_time_s: NDArray[np.float32]
    lambda_time_s: NDArray[np.float32]
    cost_unit: NDArray[np.float32]
    """Costs are divided by it: about what waits in a discount time under fair sharing."""


def measure_cells(config: TrainConfig, source: JobSource | None) -> Cells:
    """The cells of a run, with the time scales that its settings leave open.

    `source` may be None for a single cell whose times are all given.

    A decision matters for about as long as jobs stay. Measured on TPC-H: 200 s where jobs take a
    minute, about 1,000 s in an overload where they take a quarter of an hour. For the makespan it
    matters until the last job ends.
    """
    learning = config.learning
    cells = config.cells
    mean_jct_s, span_s = np.ones(len(cells)), np.ones(len(cells))
    if len(cells) > 1 or None in (learning.discount_time_s, learning.lambda_time_s):
        assert source is not None
        for k, (size, gap_s) in enumerate(cells):
            lists = JobLists(
                source,
                cluster=Cluster(
                    executors=size,
                    move_delay_s=config.move_delay_s,
                    reconsider=config.reconsider,
                    work_conserving=config.work_conserving,
                ),
                jobs=config.jobs,
                interarrival_s=gap_s,
                seed=config.seed,
                stream=streams.Stream.TUNING,
                split=config.part,
            )
            jct_s = lists.all_jct_s([BASELINE], lists.first(_LISTS))
            finish_s = lists.jobs_of(lists.first(_LISTS)).arrival_s + jct_s[0]
            mean_jct_s[k] = max(float(jct_s.mean()), 1e-6)
            span_s[k] = max(float(finish_s.max(axis=1).mean()), 1e-6)  # the first job is at 0
    executors = np.array([cell[0] for cell in cells], np.int32)
    discount_time_s = _DISCOUNT_PER_ROOT_JCT * np.sqrt(mean_jct_s)
    if config.objective == "makespan":
        discount_time_s = span_s
    if learning.discount_time_s is not None:
        discount_time_s[:] = learning.discount_time_s
    lambda_time_s = _LAMBDA_SHARE * discount_time_s
    if learning.lambda_time_s is not None:
        lambda_time_s[:] = learning.lambda_time_s
    in_system = config.jobs * mean_jct_s / span_s
    cost_unit = in_system * discount_time_s if len(cells) > 1 else np.ones(1)
    return Cells(
        executors,
        discount_time_s.astype(np.float32),
        lambda_time_s.astype(np.float32),
        cost_unit.astype(np.float32),
    )
