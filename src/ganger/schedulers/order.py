"""Which batch job comes first: the orders that batch schedulers put their queue into.

Sources: WFP3 and UNICEP (there UNICEF) of Tang, Lan, Desai & Buettner 2009, "Fault-aware,
utility-based job scheduling on Blue Gene/P systems"; F1 to F4 of Carastan-Santos & de Camargo 2017,
"Obtaining dynamic scheduling policies with simulation and machine learning", table 3.
"""

import math

from ganger.compiled import compiled

BATCH_ORDERS = {
    "fcfs": 0,
    "sjf": 1,
    "ljf": 2,
    "saf": 3,
    "wfp3": 4,
    "unicep": 5,
    "f1": 6,
    "f2": 7,
    "f3": 8,
    "f4": 9,
}
FCFS, SJF, LJF, SAF, WFP3, UNICEP, F1, F2, F3, F4 = BATCH_ORDERS.values()

_LEAST_S = 1.0  # run times and submissions count as no less: logarithms and ratios stay finite
_SERIAL = 1e-9  # in place of log2(1): UNICEP puts jobs of one executor before all others


@compiled
def score(order, requested_s, executors, submitted_s, waited_s):
    """A job's place in the queue: the smallest score comes first.

    submitted_s: since the beginning of the log.
    """
    if order == FCFS:
        return submitted_s
    if order == SJF:
        return requested_s
    if order == LJF:
        return -requested_s
    if order == SAF:
        return requested_s * executors
    r = max(requested_s, _LEAST_S)
    if order == WFP3:
        waited = waited_s / r
        return -waited * waited * waited * executors
    if order == UNICEP:
        return -waited_s / (max(math.log2(executors), _SERIAL) * r)
    s = math.log10(max(submitted_s, _LEAST_S))
    if order == F1:
        return math.log10(r) * executors + 8.70e2 * s
    if order == F2:
        return math.sqrt(r) * executors + 2.56e4 * s
    if order == F3:
        return r * executors + 6.86e6 * s
    return r * math.sqrt(executors) + 5.30e5 * s
