"""Which pool a job is put into, and what Spark reads of them."""

from xml.etree import ElementTree

import ganger.spark
from ganger.serving.spark.pools import LANES, LAST, MIN_SHARES, Pool, choose


def test_a_job_alone_is_in_the_last_rank():
    assert choose(before=[], beside=[], behind=[]) == Pool(LAST, 0)


def test_a_job_that_is_let_past_others_gets_a_better_rank_than_all_of_them():
    behind = [Pool(LAST, 0), Pool(LAST - 1, 0)]
    assert choose(before=[], beside=[], behind=behind).rank == LAST - 2


def test_when_ranks_run_out_the_best_one_is_shared():
    pool = choose(before=[], beside=[], behind=[Pool(0, 0)])
    assert pool.rank == 0


def test_a_job_after_all_others_waits_in_their_lane_or_in_the_last_rank():
    assert choose(before=[Pool(LAST, 3)], beside=[], behind=[]) == Pool(LAST, 3)
    assert choose(before=[Pool(LAST - 1, 3)], beside=[], behind=[]).rank == LAST


def test_between_two_neighbouring_ranks_it_is_served_after_the_better_one():
    better, worse = Pool(LAST - 1, 2), Pool(LAST, 0)
    assert choose(before=[better], beside=[], behind=[worse]) == better


def test_jobs_that_share_have_a_rank_in_common_and_lanes_of_their_own():
    pool = choose(before=[], beside=[Pool(LAST, 0), Pool(LAST, 1)], behind=[])
    assert pool == Pool(LAST, 2)


def test_the_file_names_every_pool_and_does_not_starve_unmarked_jobs(tmp_path):
    settings = ganger.spark.pools(tmp_path / "there" / "pools.xml")
    assert settings["spark.scheduler.mode"] == "FAIR"
    assert settings["spark.scheduler.allocation.file"].startswith("file:///")
    pools = ElementTree.parse(tmp_path / "there" / "pools.xml").getroot()
    shares = {pool.get("name"): int(pool.findtext("minShare")) for pool in pools}
    assert len(shares) == 1 + LANES * len(MIN_SHARES)
    assert shares["default"] == max(shares.values()) < 2**31
    assert shares[Pool(LAST, 0).name] == 0
    assert {pool.findtext("schedulingMode") for pool in pools} == {"FIFO"}
