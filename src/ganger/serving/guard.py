"""What stands between a learned scheduler and a cluster: a deadline, a fallback and a breaker."""

import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from ganger.config import Config
from ganger.errors import ConfigError, SchedulerError
from ganger.serving.process import NoAnswerError, SchedulerProcess, Setting
from ganger.serving.rounds import Decides, decide_round, executors_given
from ganger.simulator.observation import Decision, Observation


class GuardConfig(Config, frozen=True, kw_only=True):
    """How much is forgiven."""

    deadline_s: float = 0.1
    """An answer that takes longer is not waited for: the fallback decides."""
    fallback: str = "fair"
    """The heuristic that decides when the scheduler does not."""
    failures: int = 5
    """So many failures open the breaker: the scheduler is not asked for a while."""
    within_s: float = 60.0
    """Failures that are longer ago are forgotten."""
    cool_down_s: float = 30.0
    """How long the breaker stays open before the scheduler gets another try."""

    def __post_init__(self) -> None:
        for name in ("deadline_s", "within_s", "cool_down_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} is {getattr(self, name)}; expected seconds, above 0")
        if self.failures < 1:
            raise ConfigError(f"failures is {self.failures}; expected 1 or more")


class Breaker:
    """Opens after many failures in a short time; after a while it lets one question through."""

    def __init__(self, config: GuardConfig, clock: Callable[[], float]) -> None:
        self._config, self._clock = config, clock
        self._failures: deque[float] = deque()
        self._open_until: float | None = None
        self.opened = 0

    @property
    def open(self) -> bool:
        """Whether the scheduler is not to be asked now."""
        return self._open_until is not None and self._clock() < self._open_until

    def failed(self) -> bool:
        """Count a failure; whether the breaker opened by it."""
        now = self._clock()
        self._failures.append(now)
        while self._failures[0] < now - self._config.within_s:
            self._failures.popleft()
        # A failure of the one try after a cool-down is enough.
        if self._open_until is None and len(self._failures) < self._config.failures:
            return False
        self._open_until = now + self._config.cool_down_s
        self.opened += 1
        return True

    def succeeded(self) -> bool:
        """Count a good answer; whether the breaker closed by it."""
        if self._open_until is None:
            return False
        self._open_until = None
        self._failures.clear()
        return True


class Answer(msgspec.Struct, frozen=True):
    """The decisions of a round, and how they came about."""

    version: int
    """Of the observation that they are made for."""
    decisions: tuple[Decision, ...]
    executors: tuple[int, ...]
    """That each decision gives to its stage."""
    scheduler: str
    """Who decided."""
    latency_s: float
    fallback: str | None = None
    """Why the fallback decided: late, died, error, illegal, starting or open; None: it did not."""
    detail: str | None = None
    """Of that, for people."""
    probabilities: tuple[float, ...] = ()
    """Of each decision, under a policy."""
    drift: float | None = None


class Guard:
    """Has a scheduler decide within a deadline, and a heuristic when it does not.

    Safe to ask from several threads; they wait for each other.
    """

    def __init__(
        self,
        process: SchedulerProcess,
        config: GuardConfig,
        fallback: Decides,
        *,
        say: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Guard a scheduler.

        Args:
            process: the scheduler.
            config: how much is forgiven.
            fallback: decides here, in this process; `config.fallback`, loaded.
            say: gets a line for people when the breaker opens and when it closes.
            clock: seconds.
        """
        self.process = process
        self.config = config
        self.breaker = Breaker(config, clock)
        self._fallback = fallback
        self._candidate: SchedulerProcess | None = None
        self._share = 0.0
        self._candidate_failures = 0
        self._say = say
        self._clock = clock
        self._lock = threading.Lock()

    def decide(self, observation: Observation) -> Answer:
        """Decide a round; it never raises for what the scheduler does."""
        began = self._clock()
        with self._lock:
            try:
                return self._asked(observation, began)
            except NoAnswerError as failure:
                return self._fallen_back(observation, began, failure)

    def replace(self, process: SchedulerProcess) -> SchedulerProcess:
        """Ask another scheduler from now on; the one before, which the caller closes."""
        with self._lock:
            before, self.process = self.process, process
            self.breaker = Breaker(self.config, self._clock)
            return before

    def try_out(self, candidate: SchedulerProcess | None, share: float) -> None:
        """Have another scheduler decide a share of the rounds; None: no longer.

        Where it gives no answer the usual one decides; failing often it is not tried any more.
        """
        with self._lock:
            if self._candidate is not None:
                self._candidate.close()
            self._candidate, self._share, self._candidate_failures = candidate, share, 0

    def close(self) -> None:
        """End the scheduler's process."""
        self.try_out(None, 0.0)
        with self._lock:
            self.process.close()

    def _asked(self, observation: Observation, began: float) -> Answer:
        candidate = self._candidate
        if candidate is not None and _draw(observation.version) < self._share:
            try:
                return self._answer_of(candidate, observation, began)
            except NoAnswerError as failure:
                self._candidate_failures += 1
                if self._candidate_failures >= self.config.failures:
                    self._say(f"{candidate.setting} failed too often ({failure}): no longer tried")
                    candidate.close()
                    self._candidate = None
        if self.breaker.open:
            raise NoAnswerError("open", "the breaker is open")
        answer = self._answer_of(self.process, observation, began)
        if self.breaker.succeeded():
            self._say(f"{self.process.setting} decides again")
        return answer

    def _answer_of(
        self, process: SchedulerProcess, observation: Observation, began: float
    ) -> Answer:
        # Who waited for the lock has less time left, but always some.
        reply = process.ask(
            observation, max(self.config.deadline_s - (self._clock() - began), 1e-3)
        )
        try:
            given = executors_given(observation, reply.decisions)
        except SchedulerError as error:
            raise NoAnswerError("illegal", str(error)) from None
        return Answer(
            version=observation.version,
            decisions=reply.decisions,
            executors=tuple(given),
            scheduler=str(process.setting),
            latency_s=self._clock() - began,
            probabilities=reply.probabilities,
            drift=reply.drift,
        )

    def _fallen_back(
        self, observation: Observation, began: float, failure: NoAnswerError
    ) -> Answer:
        if failure.reason not in ("open", "starting") and self.breaker.failed():
            self._say(
                f"{self.process.setting} failed too often ({failure.reason}: {failure}); "
                f"{self.config.fallback} decides for {self.config.cool_down_s:g} s"
            )
        decisions: tuple[Decision, ...] = ()
        detail = str(failure)
        try:
            decisions = tuple(decide_round(self._fallback.decide, observation))
        except Exception as error:  # a cluster that waits is better than one without a guard
            detail += f"; {self.config.fallback} failed as well: {error!r}"
            self._say(detail)
        return Answer(
            version=observation.version,
            decisions=decisions,
            executors=tuple(executors_given(observation, decisions)),
            scheduler=self.config.fallback,
            latency_s=self._clock() - began,
            fallback=failure.reason,
            detail=detail,
        )


def _draw(version: int) -> float:
    """A number in [0, 1) that depends on the version alone."""
    return (version * 2654435761 % 2**32) / 2**32


def load_guard(
    setting: Setting, config: GuardConfig, *, say: Callable[[str], None] = lambda line: None
) -> Guard:
    """A guard over a scheduler in a process of its own, ready to decide.

    Raises:
        SchedulerError: there is no such scheduler, or no such fallback.
    """
    from ganger.schedulers import parse_scheduler  # brings the compiler
    from ganger.serving.asking import SMALL

    fallback = parse_scheduler(config.fallback)
    process = SchedulerProcess(setting)
    try:
        decide_round(fallback.decide, SMALL)  # compiles, while the other process starts
        process.wait()
    except BaseException:
        process.close()
        raise
    return Guard(process, config, fallback, say=say)
