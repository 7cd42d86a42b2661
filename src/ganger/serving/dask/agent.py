"""The agent: asks the plugin in Dask's scheduler for rounds, has a guard decide, and answers.

It may be stopped, killed and started again at any moment; without it the cluster goes on in order
of arrival.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
from distributed.comm.core import CommClosedError
from distributed.core import rpc

from ganger.errors import ConfigError
from ganger.serving.dask.messages import Act, Seen
from ganger.serving.estimates import Estimates
from ganger.serving.guard import Guard
from ganger.serving.metrics import Metrics
from ganger.serving.records import Records
from ganger.simulator.observation import Observation

_RETRY_S = 1.0
_SAVE_S = 10.0
_POLL_S = 2.0


class Agent:
    """Drives one Dask cluster."""

    def __init__(
        self,
        address: str,
        token: str,
        guard: Guard,
        estimates: Estimates,
        metrics: Metrics,
        records: Records,
        *,
        security: Any = None,
        dry_run: bool = False,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Prepare to drive.

        Args:
            address: of Dask's scheduler, as tcp://HOST:PORT.
            token: that the plugin was given.
            security: a distributed.Security, for TLS.
            dry_run: decide and record, but answer nothing.
            say: gets lines for people.
        """
        self._address, self._token = address, token
        self._guard, self._estimates = guard, estimates
        self._metrics, self._records = metrics, records
        self._security, self._dry_run, self._say = security, dry_run, say
        self._counts: Counter[str] | None = None
        self._saved_s = time.monotonic()

    async def run(self, stop: threading.Event) -> None:
        """Drive until told to stop, whatever becomes of the connection.

        Raises:
            ConfigError: the plugin refuses the token, or is not there.
        """
        lost = False
        while not stop.is_set():
            try:
                await self._drive(stop)
            except PermissionError as error:  # an OSError, too, but trying again is no use
                raise ConfigError(f"{self._address}: {error}") from None
            except (OSError, CommClosedError) as error:
                if not lost:
                    self._say(f"no connection to {self._address} ({error}); trying again")
                lost = True
                self._metrics.events.labels("disconnected").inc()
                await asyncio.sleep(_RETRY_S)
            finally:
                self._save()

    async def _drive(self, stop: threading.Event) -> None:
        connection = {} if self._security is None else self._security.get_connection_args("client")
        async with rpc(self._address, connection_args=connection or None) as scheduler:
            since, ended = -1, 0
            first = True
            while not stop.is_set():
                data = await self._ask(scheduler, since, ended)
                seen = msgspec.msgpack.decode(data, type=Seen)
                if first:
                    first = False
                    self._say(f"driving {self._address}{', in its shadow' * seen.shadow}")
                    if seen.ended_before > 0:
                        ended = seen.ended_before
                self._learn(seen, ended)
                ended = seen.ended_before + len(seen.ended)
                self._count(seen)
                if seen.observation is not None and seen.version > since:
                    since = seen.version
                    await self._decide(scheduler, seen)
                if time.monotonic() - self._saved_s > _SAVE_S:
                    self._save()

    async def _ask(self, scheduler: Any, since: int, ended: int) -> bytes:
        try:
            data = await scheduler.ganger_observe(
                token=self._token, since=since, ended=ended, timeout=_POLL_S
            )
        except (AttributeError, ValueError, KeyError) as error:
            raise ConfigError(
                f"{self._address}: its scheduler was not started with --preload ganger.dask "
                f"({error})"
            ) from None
        if not isinstance(data, bytes):
            raise ConfigError(
                f"{self._address}: its scheduler was not started with --preload ganger.dask"
            )
        return data

    async def _decide(self, scheduler: Any, seen: Seen) -> None:
        assert seen.observation is not None
        observation = self._estimated(seen.observation, seen)
        answer = await asyncio.to_thread(self._guard.decide, observation)
        outcome = "shadow" if seen.shadow else "dry-run"
        if not (seen.shadow or self._dry_run):
            act = msgspec.msgpack.encode(Act(answer.version, answer.decisions))
            done = await scheduler.ganger_act(token=self._token, answer=act)
            outcome = "acted" if done else "stale"
        self._metrics.answered(observation, answer, outcome)
        self._records.round(time.time(), observation, answer, outcome)

    def _estimated(self, observation: Observation, seen: Seen) -> Observation:
        """With what can be known of durations."""
        known = {
            (one.job, one.stage): self._estimates.estimate(one.name, one.finished, one.total_s)
            for one in seen.times
        }

        def task_s(job: str, stage: str) -> float:
            found = known.get((job, stage))  # it may have ended since
            return (found or self._estimates.estimate(stage)).task_s

        replace = msgspec.structs.replace
        return replace(
            observation,
            jobs=tuple(
                replace(
                    job,
                    stages=tuple(
                        replace(stage, estimated_task_s=task_s(job.id, stage.id))
                        for stage in job.stages
                    ),
                )
                for job in observation.jobs
            ),
        )

    def _learn(self, seen: Seen, ended: int) -> None:
        """Jobs that have ended teach durations."""
        for job in seen.ended[max(ended - seen.ended_before, 0) :]:
            for stage in job.stages:
                durations = stage.durations_s
                self._estimates.learn(stage.name or stage.id, len(durations), sum(durations))
            self._records.job(job)
            self._metrics.jct.observe(job.finish_s - job.arrival_s)

    def _count(self, seen: Seen) -> None:
        if seen.observation is None:
            self._metrics.jobs.set(len({one.job for one in seen.times}))
        counts = Counter(seen.counts)
        if self._counts is None:  # what was before is not ours
            self._counts = counts
        if any(counts[kind] < count for kind, count in self._counts.items()):
            self._counts = Counter()  # the scheduler was started anew
        for kind, count in (counts - self._counts).items():
            self._metrics.events.labels(kind).inc(count)
        self._counts = counts

    def _save(self) -> None:
        self._saved_s = time.monotonic()
        try:
            self._estimates.save()
        except OSError as error:
            self._say(f"estimates cannot be saved: {error}")
