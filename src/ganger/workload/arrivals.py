"""Job lists: which template arrives when, at random or as a log says.

Random arrivals are Poisson. Every number is keyed by (list, job, purpose), so job 7 of a list is
the same whether ten jobs are drawn or a thousand. A window of a log is so many jobs of it in a row,
with the times that lie between them.
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


@compiled
def copy_window(first, jobs, of_jobs, arrivals_s, template_out, arrival_out):
    """Fill in `jobs` jobs of a log from its job `first` on, which arrives at 0.

    of_jobs, arrivals_s: the log's jobs by arrival, their templates and seconds.
    """
    for k in range(jobs):
        template_out[k] = of_jobs[first + k]
        arrival_out[k] = arrivals_s[first + k] - arrivals_s[first]


@compiled
def draw_window(key, jobs, of_jobs, arrivals_s, template_out, arrival_out):
    """The same from a job that is drawn; the log has `jobs` jobs or more."""
    first = int(uniform(derive(key, 0)) * (len(arrivals_s) - jobs + 1))
    copy_window(first, jobs, of_jobs, arrivals_s, template_out, arrival_out)


def window_starts(count, jobs):
    """Where windows of `jobs` jobs begin that share no job, spread evenly over `count` jobs.

    They come in van der Corput's order, so that the first few are spread evenly, too.
    """
    tiles = count // jobs
    bits = max(tiles - 1, 1).bit_length()
    reversed_bits = (int(f"{i:0{bits}b}"[::-1], 2) for i in range(2**bits))
    in_order = dict.fromkeys(one * tiles >> bits for one in reversed_bits)
    return [tile * count // tiles for tile in in_order] if tiles else []
