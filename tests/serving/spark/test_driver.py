"""Whatever decides, or does not: the gate opens. Against a Spark that never has anything to say."""

import threading
import time

import pytest

from ganger.errors import ConfigError
from ganger.schedulers import parse_scheduler
from ganger.serving.estimates import Estimates
from ganger.serving.guard import Answer
from ganger.serving.records import Records
from ganger.serving.rounds import decide_round, executors_given
from ganger.serving.spark.book import Shapes
from ganger.serving.spark.driver import POOL, SparkDriver
from ganger.serving.spark.pools import LAST, MIN_SHARES, Pool


class FakeSpark:
    """A context, its tracker, its Scala side and its configuration, in one."""

    defaultParallelism = 4  # noqa: N815  Spark's name

    def __init__(self, mode="FAIR", share=None):
        self.properties = {}
        self.settings = {"spark.scheduler.mode": mode}
        self.share = share

    @property
    def _jsc(self):
        return self

    def sc(self):
        return self

    statusTracker = getConf = sc  # noqa: N815

    def get(self, name, default):
        return self.settings.get(name, default)

    def getPoolForName(self, name):  # noqa: N802
        return FakePool(MIN_SHARES[int(name.split("-")[1])] if self.share is None else self.share)

    def getJobIdsForTag(self, tag):  # noqa: N802
        return []

    def getActiveStageIds(self):  # noqa: N802
        return []

    def getLocalProperty(self, name):  # noqa: N802
        return self.properties.get(name)

    def setLocalProperty(self, name, value):  # noqa: N802
        self.properties[name] = value


class FakePool:
    def __init__(self, share):
        self.share = share

    def isDefined(self):  # noqa: N802
        return True

    def get(self):
        return self

    def minShare(self):  # noqa: N802
        return self.share


class Srpt:
    """As a Guard would answer; `hangs`, `fails` and `declines` until told otherwise."""

    def __init__(self):
        self.scheduler = parse_scheduler("srpt")
        self.hangs = threading.Event()
        self.hangs.set()
        self.fails = self.declines = False
        self.asked = 0

    def decide(self, observation):
        self.asked += 1
        self.hangs.wait()
        if self.fails:
            raise RuntimeError("a guard never does")
        decisions = () if self.declines else decide_round(self.scheduler.decide, observation)
        given = executors_given(observation, decisions)
        return Answer(observation.version, tuple(decisions), tuple(given), "srpt", 0.0)


@pytest.fixture
def guard():
    return Srpt()


@pytest.fixture
def start(guard):
    drivers = []

    def start(spark=None, **settings):
        spark = spark or FakeSpark()
        driver = SparkDriver(spark, guard, Estimates(), Shapes(), Records(None), **settings)
        drivers.append(driver)
        return driver, spark

    yield start
    guard.hangs.set()
    for driver in drivers:
        driver.close()
    assert not [one for one in threading.enumerate() if one.name == "ganger-spark"]


def passes(driver, name="a", **more):
    """Seconds at the gate."""
    began_s = time.monotonic()
    with driver.job(name, **more):
        return time.monotonic() - began_s


def test_a_job_is_in_its_pool_while_inside_and_what_was_before_comes_back(start):
    driver, spark = start()
    spark.properties = {POOL: "mine", "spark.job.tags": "theirs"}
    with driver.job("a"):
        assert spark.properties[POOL] == Pool(LAST, 0).name
        assert spark.properties["spark.job.tags"].startswith("theirs,ganger-")
    assert spark.properties == {POOL: "mine", "spark.job.tags": "theirs"}


def test_a_shorter_job_gets_a_better_pool_and_a_longer_one_waits(start):
    driver, spark = start()
    with driver.job("long", stages=(40,)):
        with driver.job("short", stages=(4,)):
            assert spark.properties[POOL] == Pool(LAST - 1, 0).name
        waits = threading.Thread(target=passes, args=(driver, "longer"), kwargs={"stages": (80,)})
        waits.start()
        waits.join(0.3)
        assert waits.is_alive()
    waits.join(5)
    assert not waits.is_alive()


def test_two_jobs_of_one_name_are_two(start):
    driver, _ = start()
    with driver.job("a"), driver.job("a"):
        pass
    assert driver.counts["jobs"] == 2


@pytest.mark.parametrize("trouble", ["hangs", "fails", "declines"])
def test_the_gate_opens_whatever_the_guard_does(start, guard, trouble):
    driver, _ = start(patience_s=0.6, stall_s=0.4)
    if trouble == "hangs":
        guard.hangs.clear()
    else:
        setattr(guard, trouble, True)
    assert passes(driver) < 5
    guard.hangs.set()
    why = {"hangs": "unattended", "fails": "errors_let_through", "declines": "stalled"}
    assert driver.counts[why[trouble]] == 1


def test_closing_opens_the_gate_and_what_comes_later_passes(start, guard):
    driver, _ = start()
    guard.declines = True
    waits = threading.Thread(target=passes, args=(driver,))
    waits.start()
    time.sleep(0.1)
    driver.close()
    waits.join(5)
    assert not waits.is_alive()
    assert passes(driver, "late") < 1


def test_in_the_shadow_nobody_waits_and_no_pool_is_set(start, guard):
    guard.declines = True
    driver, spark = start(FakeSpark(mode="FIFO"), shadow=True)
    with driver.job("a"):
        assert POOL not in spark.properties
        end = time.monotonic() + 5
        while not guard.asked and time.monotonic() < end:
            time.sleep(0.02)
    assert guard.asked


@pytest.mark.parametrize(
    ("spark", "says"),
    [
        (FakeSpark(mode="FIFO"), "spark.scheduler.mode is FIFO"),
        (FakeSpark(share=3), "no pool 'ganger-0-0' of ours"),
    ],
)
def test_an_application_without_our_pools_is_refused(start, spark, says):
    with pytest.raises(ConfigError, match=says):
        start(spark)


def test_a_stage_without_tasks_is_refused(start):
    driver, _ = start()
    with pytest.raises(ConfigError, match="stages have tasks"):
        passes(driver, stages=(4, 0))
