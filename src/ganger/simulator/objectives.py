"""What a schedule can be judged by: the names, and the numbers that compiled code knows them by.

The cost of an objective is the integral over time of a rate. At time t, with the jobs j in the
system, their arrivals a_j and weights w_j, that rate is:

mean      the number of jobs; over an episode it sums to the completion times
weighted  sum of w_j; to the completion times x the weight of the job's user
slowdown  the same with w_j = 1 / the job's critical path, of real durations; to the slowdowns
tail      sum of 2 (t - a_j); to the squares of the completion times
makespan  1 from the first arrival to the last job's end; to the makespan
"""

OBJECTIVES = {"mean": 0, "weighted": 1, "slowdown": 2, "tail": 3, "makespan": 4}
MEAN, WEIGHTED, SLOWDOWN, TAIL, MAKESPAN = OBJECTIVES.values()
