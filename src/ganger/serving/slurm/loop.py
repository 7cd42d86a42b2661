"""The loop of a driver, and its end: whatever happens, jobs are given back."""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from ganger.serving.estimates import Estimates
from ganger.serving.guard import Answer
from ganger.serving.metrics import Metrics
from ganger.serving.records import Records
from ganger.serving.rounds import executors_given
from ganger.serving.slurm.client import SlurmError
from ganger.serving.slurm.driver import Driver, SlurmConfig
from ganger.serving.slurm.watchdog import Watchdog
from ganger.simulator.observation import Observation

_SAVE_S = 10.0


class Decider(Protocol):
    """What decides: a Guard."""

    def decide(self, observation: Observation) -> Answer:
        """Decide a round; it never raises for what a scheduler does."""


class Loop:
    """Has a guard decide what a driver observes."""

    def __init__(
        self,
        driver: Driver,
        config: SlurmConfig,
        guard: Decider,
        estimates: Estimates,
        metrics: Metrics,
        records: Records,
        *,
        outcome: str = "acted",
        watchdog: Watchdog | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Prepare to drive.

        Args:
            driver: of the cluster.
            config: the driver's.
            guard: decides.
            estimates: learn from jobs that end, and are saved now and then.
            metrics: count.
            records: keep rounds, and jobs that ended.
            outcome: acted, dry-run or shadow: the latter two give nothing back.
            watchdog: gives back what could not be given back here.
            say: gets lines for people.
        """
        self._driver, self._config, self._guard = driver, config, guard
        self._estimates, self._metrics, self._records = estimates, metrics, records
        self._outcome, self._watchdog, self._say = outcome, watchdog, say
        self._unanswered = False
        self._last: Observation | None = None
        self._declined_since_s: float | None = None
        self._saved_s = time.monotonic()

    def run(self, stop: threading.Event) -> None:
        """Drive until told to stop; then give everything back.

        Raises:
            ConfigError: Slurm's commands are gone.
        """
        try:
            while not stop.is_set():
                began_s = time.monotonic()
                self.step()
                left_s = self._config.interval_s - (time.monotonic() - began_s)
                stop.wait(max(left_s, 0.01))
        finally:
            self._save()
            if self._outcome == "acted":
                self._give_back()

    def step(self) -> None:
        """Look, decide, act; what Slurm does not answer is tried again the next time."""
        try:
            observation = self._driver.observe()
        except SlurmError as error:
            self._metrics.events.labels("unanswered").inc()
            if not self._unanswered:
                self._say(f"{error}; trying again, nothing is forgotten")
            self._unanswered = True
            return
        if self._unanswered:
            self._say("Slurm answers again")
        self._unanswered = False
        self._metrics.saw(observation)
        self._learn()
        answer = self._decide(observation)
        if answer is None:
            self._driver.act((), observation.version)
        else:
            in_time = self._driver.act(answer.decisions, answer.version)
            outcome = self._outcome if in_time else "stale"
            self._metrics.answered(observation, answer, outcome)
            self._records.round(time.time(), observation, answer, outcome)
        if time.monotonic() - self._saved_s > _SAVE_S:
            self._save()

    def _decide(self, observation: Observation) -> Answer | None:
        """None: there is nothing to decide, or nothing new since it was decided."""
        if observation.on_offer < 1 or not any(job.schedulable for job in observation.jobs):
            self._last = self._declined_since_s = None
            return None
        alike = replace(observation, version=0, time_s=0.0)
        now_s = time.monotonic()
        if alike == self._last:
            # It declined, or may only watch.
            since_s = self._declined_since_s
            if since_s is None or now_s - since_s < self._config.stall_s:
                return None
            self._declined_since_s = None
            return self._stalled(observation)
        answer = self._guard.decide(observation)
        self._last = alike if not answer.decisions or self._outcome != "acted" else None
        working = any(job.supply for job in observation.jobs)
        declined = not answer.decisions and not working and self._outcome == "acted"
        self._declined_since_s = now_s if declined else None
        return answer

    def _stalled(self, observation: Observation) -> Answer:
        self._metrics.events.labels("stalled").inc()
        self._say("the scheduler declines although nothing runs: the first stage is served")
        self._last = None
        decisions = tuple(self._driver.serve_first(observation))
        return Answer(
            version=observation.version,
            decisions=decisions,
            executors=tuple(executors_given(observation, decisions)),
            scheduler="first",
            latency_s=0.0,
            fallback="stalled",
        )

    def _learn(self) -> None:
        for job in self._driver.ended:
            for stage in job.stages:
                took_s = stage.took_s.values()
                self._estimates.learn(stage.key, len(took_s), float(sum(took_s)))
            seen = self._driver.seen(job)
            self._records.job(seen)
            self._metrics.jct.observe(max(seen.finish_s - seen.arrival_s, 0.0))
        self._driver.ended = []

    def _give_back(self) -> None:
        try:
            self._driver.give_back()
        except SlurmError as error:
            if self._watchdog is not None:
                self._watchdog.tell(self._driver.drives)
                self._watchdog.abandon()
                self._say(
                    f"{error}; process {self._watchdog.pid} keeps trying to give the jobs back"
                )
            return
        if self._watchdog is not None:
            self._watchdog.goodbye()

    def _save(self) -> None:
        self._saved_s = time.monotonic()
        try:
            self._estimates.save()
        except OSError as error:
            self._say(f"estimates cannot be saved: {error}")
