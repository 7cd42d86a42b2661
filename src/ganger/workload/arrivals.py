"""Random job lists: which template arrives when.

Arrivals are Poisson. Every number is keyed by (list, job, purpose), so job 7 of a list is the same
whether ten jobs are drawn or a thousand.
"""

import math

from ganger.compiled import compiled
from ganger.streams import derive, uniform


@compiled
def draw_job_list(key, jobs, mean_interarrival_s, template_count, template_out, arrival_out):
    """Fill in the template (int32) and arrival (float64, seconds) of each of `jobs` jobs.

    The first job arrives at 0, each next one an exponentially distributed gap later; templates are
    uniform in [0, template_count).
    """
    now_s = 0.0
    for job in range(jobs):
        job_key = derive(key, job)
        if job > 0:
            # math.log, not numpy's: the same bits compiled and uncompiled.
            now_s -= mean_interarrival_s * math.log(1.0 - uniform(derive(job_key, 0)))
        template_out[job] = int(uniform(derive(job_key, 1)) * template_count)
        arrival_out[job] = now_s
