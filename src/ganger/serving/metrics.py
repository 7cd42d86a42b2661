"""What a service or driver counts, for Prometheus and for the status page."""

import time
from typing import Any

from ganger.errors import MissingExtraError
from ganger.serving.guard import Answer
from ganger.simulator.observation import Observation

_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_JCT_S = tuple(10.0**k * b for k in range(-1, 5) for b in (1, 3))


class Metrics:
    """Counters of one service or driver."""

    def __init__(self) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        except ImportError:
            raise MissingExtraError("Serving metrics", "serve") from None
        self.registry = CollectorRegistry()
        self.started_s = time.time()
        own: dict[str, Any] = {"registry": self.registry}
        self.decisions = Counter("ganger_decisions", "Stages that were given executors.", **own)
        self.rounds = Counter(
            "ganger_rounds", "Rounds, by what became of them.", ["outcome"], **own
        )
        self.fallbacks = Counter(
            "ganger_fallbacks", "Rounds that the fallback decided, by reason.", ["reason"], **own
        )
        self.deciders = Counter(
            "ganger_answers", "Rounds, by who decided them.", ["scheduler"], **own
        )
        self.latency = Histogram(
            "ganger_decision_seconds", "From a round's begin to its answer.", buckets=_BUCKETS_S,
            **own,
        )  # fmt: skip
        self.breaker = Gauge("ganger_breaker_open", "1 while the scheduler is not asked.", **own)
        self.drift = Gauge(
            "ganger_drift", "How unlike its training the policy finds the cluster; alarm above 1.",
            **own,
        )  # fmt: skip
        self.jobs = Gauge("ganger_jobs", "Jobs in the system.", **own)
        self.executors = Gauge("ganger_executors", "Executors of the cluster.", **own)
        self.idle = Gauge("ganger_executors_idle", "Executors without a task.", **own)
        self.jct = Histogram(
            "ganger_jct_seconds", "Completion times of jobs.", buckets=_JCT_S, **own
        )
        self.events = Counter(
            "ganger_events", "What a driver met that is not routine, by kind.", ["kind"], **own
        )
        self.requests = Counter("ganger_requests", "HTTP requests, by status.", ["status"], **own)

    def answered(self, observation: Observation, answer: Answer, outcome: str) -> None:
        """Count a round."""
        self.rounds.labels(outcome).inc()
        self.decisions.inc(len(answer.decisions))
        self.deciders.labels(answer.scheduler).inc()
        self.latency.observe(answer.latency_s)
        if answer.fallback is not None:
            self.fallbacks.labels(answer.fallback).inc()
        self.breaker.set(answer.fallback == "open")
        if answer.drift is not None:
            self.drift.set(answer.drift)
        self.saw(observation)

    def saw(self, observation: Observation) -> None:
        """Show what the cluster is like."""
        self.jobs.set(len(observation.jobs))
        self.executors.set(observation.executors)
        self.idle.set(observation.idle)

    def text(self) -> bytes:
        """In Prometheus' exposition format."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)

    def figures(self) -> dict[str, float]:
        """Name, with labels, to value; without the buckets of histograms."""
        return {
            sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if not sample.name.endswith(("_bucket", "_created"))
        }
