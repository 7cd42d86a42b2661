"""`ganger serve`: flags, and what is said to people."""

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg, subcommand

from ganger.errors import ConfigError
from ganger.serving.guard import Guard, GuardConfig, load_guard
from ganger.serving.process import Setting
from ganger.serving.slurm.driver import SlurmConfig

if TYPE_CHECKING:
    from ganger.serving.estimates import Estimates
    from ganger.serving.metrics import Metrics
    from ganger.serving.records import Records

_Flat = arg(name="")
_GUARD = GuardConfig()
_WINDOWS, _WINDOW_JOBS = 64, 64
_SLURM = SlurmConfig()


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Decide for engines over HTTP: POST an observation to /decide, get the decisions."""

    scheduler: Annotated[Positional[str], arg(metavar="SCHEDULER")] = "general"
    """The path of a training run or checkpoint; general, the policy that comes with Ganger; a
    heuristic; or a file made by ganger promote, which is watched."""
    sample: bool = False
    """Let a learned scheduler draw its actions instead of taking the most probable ones."""
    host: str = "127.0.0.1"
    """Address to listen on; any but a loopback one demands a token."""
    port: int = 8471
    """Port to listen on; 0: any that is free, which is then said."""
    token_file: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Holds the token that clients must show, as Authorization: Bearer TOKEN."""
    guard: Annotated[GuardConfig, _Flat] = _GUARD
    record: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    """Log every round there: what was seen, what was answered, how fast."""

    def run(self) -> None:
        from ganger.serving.metrics import Metrics
        from ganger.serving.records import Records
        from ganger.serving.service import Service, ServiceConfig
        from ganger.serving.web import WebServer

        metrics = Metrics()
        config = ServiceConfig(host=self.host, port=self.port)
        records = Records(self.record)
        with stopping() as stop, guarded(Setting(self.scheduler, self.sample), self.guard) as guard:
            about = {"scheduler": guard.process.setting, "fallback": self.guard.fallback}
            service = Service(guard, config, metrics, records, read_token(self.token_file), about)
            with WebServer(service.application(), config.host, config.port) as server:
                say(f"{guard.process.setting} decides at {server.url}/decide; Ctrl-C ends it")
                stop.wait()
        records.close()
        figures = metrics.figures()
        print(json.dumps({name: figures[name] for name in sorted(figures) if figures[name]}))


def say(line: str) -> None:
    """Tell people, on standard error."""
    print(f"ganger: {line}", file=sys.stderr, flush=True)


def read_token(path: Path | None) -> str | None:
    """The secret in a file.

    Raises:
        ConfigError: it cannot be read, or others may read it.
    """
    if path is None:
        return None
    try:
        token = path.read_text(encoding="utf-8").strip()
        if path.stat().st_mode & 0o077:
            say(f"{path} can be read by others: chmod 600 {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: holds no token: {error}") from None
    return token


@contextlib.contextmanager
def guarded(
    setting: Setting, config: GuardConfig, say: Callable[[str], None] = say
) -> Iterator[Guard]:
    """A guard that is ready, and is closed afterwards; `say` gets lines for people."""
    from ganger.serving.deployment import is_deployment, read_deployment, watched

    path = Path(setting.scheduler) if is_deployment(setting.scheduler) else None
    if path is not None:
        setting = Setting(read_deployment(path).scheduler, setting.sample)
    say(f"loading {setting}, and {config.fallback} as fallback")
    guard = load_guard(setting, config, say=say)
    try:
        with watched(path, guard, setting.sample, say) if path else contextlib.nullcontext():
            yield guard
    finally:
        guard.close()


@contextlib.contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets; once more ends the process at once."""
    stop = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)

    def ask(number: int, frame: Any) -> None:
        for one in signals:
            signal.signal(one, signal.SIG_DFL)
        stop.set()

    before = {number: signal.signal(number, ask) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, kw_only=True)
class Promote:
    """Choose what decides: in a file that ganger serve and ganger drive watch.

    On a log, as drivers record it, the new scheduler must not be worse than the one that decides
    now; windows of the log are of its last fifth.
    """

    deployment: Annotated[Positional[Path], arg(metavar="FILE.json")]
    """Where it is written down; made if it is not there."""
    scheduler: Annotated[Positional[str | None], arg(metavar="SCHEDULER")] = None
    """What is to decide: a run, a checkpoint, general or a heuristic. As before with --rollback."""
    rollback: bool = False
    """Go back to what decided before the last promotion; a candidate is no longer tried."""
    share: Annotated[float | None, arg(metavar="SHARE", help_behavior_hint="")] = None
    """Only try it, on this share of the rounds."""
    log: Annotated[str | None, arg(metavar="WORKLOAD", help_behavior_hint="")] = None
    """Compare on this log before."""
    executors: int = 50
    """Of the cluster to compare on, where the scheduler is a heuristic; a policy knows its own."""
    force: bool = False
    """Take it even if it is worse."""

    def run(self) -> None:
        from ganger.serving.deployment import Deployment, read_deployment, write_deployment

        path = self.deployment
        if path.suffix != ".json":
            raise ConfigError(f"{path}: a deployment's name ends in .json")
        now = read_deployment(path) if path.exists() else None
        if self.rollback:
            if self.scheduler is not None or now is None:
                raise ConfigError("--rollback needs a deployment that is there, and no scheduler")
            if now.candidate is None and now.previous is None:
                raise ConfigError(f"{path}: there is nothing to go back to")
            back = now.scheduler if now.candidate else now.previous
            assert back is not None
            kept = now.previous if now.candidate else None
            write_deployment(path, Deployment(scheduler=back, previous=kept))
            print(f"{path}: {back} decides")
            return
        if self.scheduler is None:
            raise ConfigError("say which scheduler is to decide, or --rollback")
        if self.share is not None and now is None:
            raise ConfigError(f"{path}: nothing decides there yet that could share with it")
        if self.share is not None and not 0 < self.share <= 1:
            raise ConfigError(f"--share is {self.share}; expected above 0, at most 1")
        self._check(None if now is None else now.scheduler)
        if self.share is not None:
            assert now is not None
            write_deployment(
                path,
                Deployment(
                    scheduler=now.scheduler,
                    previous=now.previous,
                    candidate=self.scheduler,
                    share=self.share,
                ),
            )
            print(f"{path}: {self.scheduler} decides {self.share:.0%} of the rounds")
            return
        before = None if now is None else now.scheduler
        write_deployment(path, Deployment(scheduler=self.scheduler, previous=before))
        print(f"{path}: {self.scheduler} decides")

    def _check(self, current: str | None) -> None:
        """Load it, and compare it with what decides now."""
        from ganger.evaluation.episodes import JobLists
        from ganger.planning import load_scheduler
        from ganger.policy.checkpoint import read_policy
        from ganger.policy.scheduler import PolicyScheduler
        from ganger.serving.deployment import compared
        from ganger.simulator.cluster import Cluster
        from ganger.workload import load_source

        assert self.scheduler is not None
        new = load_scheduler(self.scheduler)
        if self.log is None or current is None:
            say("it was not compared with anything" + ("; see --log" if current else ""))
            return
        cluster = Cluster(executors=self.executors)
        if isinstance(new, PolicyScheduler):
            about = read_policy(self.scheduler).trained_on
            executors = about.executors if isinstance(about.executors, int) else self.executors
            cluster = Cluster(
                executors=executors,
                move_delay_s=about.move_delay_s,
                reconsider=about.reconsider,
                work_conserving=about.work_conserving,
            )
        source = load_source(self.log)
        last = len(source.templates("test"))
        jobs = max(1, min(_WINDOW_JOBS, last // 4))
        lists = JobLists(source, cluster=cluster, jobs=jobs, interarrival_s=None, seed=0)
        indices = lists.first(_WINDOWS)
        found = compared(lists.all_jct_s([new, load_scheduler(current)], indices))
        say(
            f"on {found.windows} windows of {jobs} jobs its mean completion time is "
            f"{found.ratio:.3f} +- {found.error:.3f} of {current}'s"
        )
        if not found.good and not self.force:
            raise ConfigError(f"{self.scheduler} is worse than {current}: not taken; see --force")


@dataclass(frozen=True, kw_only=True)
class Driver:
    """What all drivers take."""

    scheduler: str = "general"
    """The path of a training run or checkpoint; general, the policy that comes with Ganger; a
    heuristic; or a file made by ganger promote, which is watched."""
    sample: bool = False
    """Let a learned scheduler draw its actions instead of taking the most probable ones."""
    dry_run: bool = False
    """Decide and say what would be done, but do nothing."""
    record: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    """Keep there every decision, the jobs that were seen as a workload, and what was learned of
    durations."""
    prior_s: float = 1.0
    """How long a task is thought to take while nothing at all is known."""
    status_port: Annotated[int | None, arg(metavar="PORT", help_behavior_hint="")] = None
    """Serve metrics and a status page on this port of 127.0.0.1; 0: any that is free."""
    guard: Annotated[GuardConfig, _Flat] = _GUARD

    @property
    def setting(self) -> Setting:
        """What decides."""
        return Setting(self.scheduler, self.sample)

    @contextlib.contextmanager
    def parts(self, about: dict[str, Any]) -> "Iterator[Parts]":
        """What a driver needs, and its status page while it runs."""
        from ganger.serving.estimates import Estimates
        from ganger.serving.metrics import Metrics
        from ganger.serving.records import Records
        from ganger.serving.service import ServiceConfig, pages
        from ganger.serving.web import WebServer

        metrics, records = Metrics(), Records(self.record)
        path = None if self.record is None else self.record / "estimates.json"
        estimates = Estimates(self.prior_s, path)
        about = {"scheduler": self.setting, "fallback": self.guard.fallback} | about
        with contextlib.ExitStack() as stack:
            if self.status_port is not None:
                config = ServiceConfig(port=self.status_port)
                application = pages(metrics, None, about, config)
                server = stack.enter_context(WebServer(application, config.host, config.port))
                say(f"status and metrics at {server.url}/")
            guard = stack.enter_context(guarded(self.setting, self.guard))
            yield Parts(guard, estimates, metrics, records)
        records.close()
        figures = metrics.figures() | {"estimates": estimates.error()}
        print(json.dumps({name: figures[name] for name in sorted(figures) if figures[name]}))


@dataclass(frozen=True)
class Parts:
    """What a driver needs."""

    guard: Guard
    estimates: "Estimates"
    metrics: "Metrics"
    records: "Records"


@dataclass(frozen=True, kw_only=True)
class DriveDask(Driver):
    """Drive a Dask cluster whose scheduler runs with --preload ganger.dask."""

    address: Annotated[Positional[str], arg(metavar="ADDRESS")]
    """Of Dask's scheduler, as tcp://127.0.0.1:8786 or tls://..."""
    token_file: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Holds the secret that the scheduler was given in GANGER_TOKEN; else that variable is read
    here, too."""
    tls_ca: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """For tls://: the authority that signed the scheduler's certificate."""
    tls_cert: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Our certificate."""
    tls_key: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Its key."""

    def run(self) -> None:
        import asyncio
        import os

        from ganger.errors import MissingExtraError

        try:
            import distributed
        except ImportError:
            raise MissingExtraError("ganger drive dask", "dask") from None
        from ganger.serving.dask.agent import Agent

        token = read_token(self.token_file) or os.environ.get("GANGER_TOKEN", "")
        if not token:
            raise ConfigError("give the scheduler's secret with --token-file or in GANGER_TOKEN")
        security = None
        if self.tls_ca or self.tls_cert or self.tls_key:
            security = distributed.Security(
                tls_ca_file=_text(self.tls_ca),
                tls_client_cert=_text(self.tls_cert),
                tls_client_key=_text(self.tls_key),
                require_encryption=True,
            )
        with stopping() as stop, self.parts({"cluster": self.address}) as parts:
            agent = Agent(
                self.address,
                token,
                parts.guard,
                parts.estimates,
                parts.metrics,
                parts.records,
                security=security,
                dry_run=self.dry_run,
                say=say,
            )
            asyncio.run(agent.run(stop))


@dataclass(frozen=True, kw_only=True)
class DriveSlurm(Driver):
    """Drive a partition of a Slurm cluster: jobs submitted with --hold --comment=ganger."""

    partition: Annotated[Positional[str], arg(metavar="PARTITION")]
    """Its name."""
    slurm: Annotated[SlurmConfig, _Flat] = _SLURM
    give_back: bool = False
    """Only release what marked jobs are held there, such as a driver left that died with its
    watchdog."""

    def run(self) -> None:
        from ganger.serving.slurm.acting import Drives, give_back
        from ganger.serving.slurm.client import Client, SlurmError, check_partition
        from ganger.serving.slurm.driver import Driver as SlurmDriver
        from ganger.serving.slurm.loop import Loop
        from ganger.serving.slurm.watchdog import Watchdog, lock

        client = Client(self.partition, self.slurm.timeout_s)
        passive = self.dry_run or self.slurm.shadow
        with contextlib.ExitStack() as stack:
            if not passive:
                held = stack.enter_context(lock(self.partition))
            if self.give_back:
                count = give_back(client, Drives(self.partition), say)
                print(json.dumps({"jobs_given_back": count}))
                return
            with contextlib.suppress(SlurmError):  # it may be restarting: the loop waits for it
                check_partition(client, self.partition)
            stop = stack.enter_context(stopping())
            parts = stack.enter_context(self.parts({"partition": self.partition}))
            watchdog = None if passive else Watchdog(self.partition, self.slurm.timeout_s, held)
            driver = SlurmDriver(
                client,
                self.partition,
                self.slurm,
                parts.estimates,
                dry_run=self.dry_run,
                guardian=watchdog,
                count=lambda kind: parts.metrics.events.labels(kind).inc(),
                say=say,
                show=lambda line: print(line, flush=True),
            )
            loop = Loop(
                driver,
                self.slurm,
                parts.guard,
                parts.estimates,
                parts.metrics,
                parts.records,
                outcome="shadow" if self.slurm.shadow else "dry-run" if passive else "acted",
                watchdog=watchdog,
                say=say,
            )
            shadow = ", in its shadow" * self.slurm.shadow + ", dry" * self.dry_run
            say(f"driving partition {self.partition}{shadow}")
            loop.run(stop)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


@dataclass(frozen=True, kw_only=True)
class Drive:
    """Have a scheduler decide for a real cluster, or watch one."""

    engine: Annotated[
        Annotated[DriveDask, subcommand("dask")] | Annotated[DriveSlurm, subcommand("slurm")], _Flat
    ]

    def run(self) -> None:
        self.engine.run()
