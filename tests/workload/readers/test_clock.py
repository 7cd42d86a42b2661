import pytest

from ganger.workload import Job, Pool, Recorded, Stage
from ganger.workload.readers.clock import first_timezone, start_at_zero

STAGES = (Stage(id="0", task_count=1, durations=Pool((1.0,))),)


def test_the_first_arrival_becomes_zero_and_what_was_recorded_moves_along():
    jobs = [
        Job(id="late", arrival_s=9.0, stages=STAGES, recorded=Recorded(start_s=9.5, finish_s=10.5)),
        Job(id="first", arrival_s=4.0, stages=STAGES, recorded=Recorded(status="ok")),
        Job(id="as early", arrival_s=4.0, stages=STAGES),
    ]
    assert start_at_zero(jobs) == 4.0
    assert jobs == [
        Job(id="first", arrival_s=0.0, stages=STAGES, recorded=Recorded(status="ok")),
        Job(id="as early", arrival_s=0.0, stages=STAGES),
        Job(id="late", arrival_s=5.0, stages=STAGES, recorded=Recorded(start_s=5.5, finish_s=6.5)),
    ]
    assert start_at_zero([]) == 0.0


@pytest.mark.parametrize(
    ("names", "zone"),
    [
        (["Europe/Stockholm", "3600"], "Europe/Stockholm"),
        (["no/where", "-28800"], "-08:00"),
        (["+05:30"], "+05:30"),
        (["../etc/passwd", "1e9", "nan", "\0", ""], None),
        ([], None),
    ],
)
def test_a_time_zone_is_a_known_name_or_an_offset(names, zone):
    assert first_timezone(names) == zone
