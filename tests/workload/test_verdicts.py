import pytest

from ganger.errors import WorkloadError
from ganger.workload import Demand, Job, Pool, Stage
from ganger.workload.verdicts import (
    gaps,
    offered_load,
    refuse_misfits,
    template_verdicts,
    verdicts,
)


def job(id, arrival_s=0.0, tasks=4, seconds=10.0, gang=True, estimate=None, demand=None):
    stage = Stage(
        id="0",
        task_count=tasks,
        durations=Pool((seconds,)),
        gang=gang,
        estimated_task_s=estimate,
        demand=demand,
    )
    return Job(id=id, arrival_s=arrival_s, stages=(stage,))


def test_a_gang_larger_than_the_cluster_is_named_with_what_it_asks_and_what_there_is():
    jobs = [job("small"), job("big", tasks=64), job("wide, but no gang", tasks=64, gang=False)]
    (verdict,) = verdicts(jobs, 4)
    assert (verdict.severity, verdict.kind) == ("error", "never_fits")
    assert verdict.message == "1 job can never run on 4 executors: at once 'big' asks for 64"
    (misfit,) = verdict.misfits
    assert (misfit.job, misfit.stage, misfit.asks, misfit.there_are) == ("big", "0", 64, 4)
    with pytest.raises(WorkloadError, match="'big' asks for 64"):
        refuse_misfits([verdict])
    assert verdicts(jobs, 64) == []
    refuse_misfits(verdicts(jobs, 64))


def test_of_many_that_never_fit_the_first_are_named_and_all_are_listed():
    (verdict,) = verdicts([job(str(i), tasks=9) for i in range(30)], 8)
    assert "30 jobs can never run" in verdict.message
    assert "'4' asks for 9, and so do 25 more" in verdict.message
    assert "'5'" not in verdict.message
    assert len(verdict.misfits) == 30


def test_load_is_real_work_over_what_the_cluster_could_do_while_jobs_arrive():
    # 3 jobs of 40 executor-seconds in 20 s: 6 executors' worth, whatever was estimated.
    jobs = [job(str(i), arrival_s=10.0 * i, estimate=1e6) for i in range(3)]
    assert offered_load(jobs, 12) == 0.5
    assert verdicts(jobs, 12) == []
    (verdict,) = verdicts(jobs, 4)
    assert (verdict.severity, verdict.kind) == ("warning", "overload")
    assert "1.50 times as much work arrives as 4 executors can do" in verdict.message
    refuse_misfits([verdict])


def test_jobs_that_arrive_at_once_have_no_load():
    assert offered_load([job("a"), job("b")], 4) is None
    assert offered_load([], 4) is None


def test_long_gaps_are_told_and_ordinary_nights_are_not():
    hourly = [job(str(i), arrival_s=3600.0 * i) for i in range(100)]
    assert gaps(hourly) == []
    late = [job(f"late{i}", arrival_s=3600.0 * (99 + 72 + i)) for i in range(100)]
    (verdict,) = gaps([*hourly, *late])
    assert verdict.severity == "note"
    assert "once nothing arrives" in verdict.message
    assert "at most for 3.0 days, after job '99' at 356,400 s" in verdict.message
    weekly = [job(str(i), arrival_s=7 * 86400.0 * i) for i in range(10)]
    assert gaps(weekly) == []


def test_random_jobs_are_judged_by_their_templates_and_mean_interarrival():
    templates = [job("a", tasks=2).stages, job("b", tasks=6).stages]
    # 20 and 60 executor-seconds: 40 on average.
    assert template_verdicts(templates, 6, 10.0) == []
    (verdict,) = template_verdicts(templates, 6, 5.0)
    assert "1.33 times" in verdict.message
    (verdict,) = template_verdicts(templates, 4, 100.0)
    assert "'template 1' asks for 6" in verdict.message
    assert template_verdicts(templates, 6, 0.0) == []


def test_that_demands_are_taken_to_be_met_is_said():
    jobs = [job("a", demand=Demand(cores=2.0)), job("b"), job("c", demand=Demand(memory=1.5))]
    (verdict,) = verdicts(jobs, 8)
    assert (verdict.severity, verdict.kind) == ("note", "demands")
    assert "2 jobs ask" in verdict.message
    assert "at most 2 cores, 1.5 of memory" in verdict.message
    assert template_verdicts([jobs[0].stages], 8, 100.0) == [
        verdict for verdict in verdicts(jobs[:1], 8) if verdict.kind == "demands"
    ]
