"""A real Dask cluster of processes on this machine, for tests and benchmarks."""

import contextlib
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from dask import delayed
from distributed import Client

import ganger.dask

QUIET = {
    "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__LIMIT": "60s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "20s",
}


@dataclass
class DaskCluster:
    """`with DaskCluster(4) as cluster`: a stock scheduler with our preload, and its workers."""

    workers: int
    gated: bool = True
    tls: tuple[str, str, str] | None = None
    """Certificate of the authority; certificate and key of everybody."""
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
        self.token = secrets.token_hex(16)
        self.processes = []
        self.worker_processes = []
        here = {"GANGER_TOKEN": self.token, "PYTHONPATH": str(Path(__file__).parent)}
        self.environment = os.environ | QUIET | here | self.environment
        self.lines = []

    def __enter__(self):
        try:
            self.start_scheduler()
            for _ in range(self.workers):
                self.start_worker()
            self.client = self.new_client()
            if self.workers:
                self.client.wait_for_workers(self.workers, timeout=90)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.client.close(timeout=5)
        for process in reversed(self.processes):
            stop(process)

    def start_scheduler(self, port=0):
        preload = ("--preload", "ganger.dask") if self.gated else ()
        self.scheduler = self.start(
            "dask", "scheduler", "--host", self._host(port), "--no-dashboard", *preload,
            *self._tls_flags(),
        )  # fmt: skip
        self.address = self._said(self.scheduler, r"Scheduler at:\s+(\S+)")
        threading.Thread(target=self._read, args=(self.scheduler,), daemon=True).start()

    def _host(self, port):
        return f"{'tls' if self.tls else 'tcp'}://127.0.0.1:{port}"

    def _tls_flags(self):
        names = ("--tls-ca-file", "--tls-cert", "--tls-key")
        return [word for pair in zip(names, self.tls or (), strict=False) for word in pair]

    def start_worker(self, threads=1):
        worker = self.start(
            "dask", "worker", self.address, "--nthreads", str(threads), "--no-nanny",
            "--no-dashboard", "--memory-limit", "0", "--name", f"w{len(self.worker_processes)}",
            *self._tls_flags(), quiet=True,
        )  # fmt: skip
        self.worker_processes.append(worker)
        return worker

    def start_agent(self, scheduler, *flags, wait=True):
        """`ganger drive dask`; returns its process when it drives."""
        agent = self.start(
            "ganger", "drive", "dask", self.address, "--scheduler", scheduler, *flags
        )
        if wait:
            self._said(agent, r"driving (\S+)")
        return agent

    def start(self, program, *flags, quiet=False):
        where = os.path.join(os.path.dirname(sys.executable), program)
        process = subprocess.Popen(
            [where, *flags],
            env=self.environment,
            stdout=subprocess.DEVNULL if quiet else subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def _said(self, process, pattern):
        said = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError("".join(said))

    def _read(self, process):
        with contextlib.suppress(ValueError):  # closed
            for line in process.stderr:
                self.lines.append(line)

    def new_client(self):
        security = None
        if self.tls:
            from distributed import Security

            ca, cert, key = self.tls
            security = Security(
                tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True
            )
        return Client(self.address, set_as_default=False, security=security, timeout=60)


def stop(process):
    """End a process, whatever state it is in."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def sleep_task(seconds, *_):
    time.sleep(seconds)
    return 1


def fails_once(name):
    """Fails where it has not run before."""
    mark = Path(tempfile.gettempdir()) / f"ganger-test-{os.getuid()}-{name}"
    if mark.exists():
        mark.unlink()
        return "done"
    mark.touch()
    raise OSError("not yet")


@dataclass
class SleepJob:
    """A DAG of stages of sleeping tasks, each stage waiting for all of the one before."""

    name: str
    counts: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def work_s(self):
        return sum(count * s for count, s in zip(self.counts, self.seconds, strict=True))

    def build(self, run):
        above = []
        for s, (count, seconds) in enumerate(zip(self.counts, self.seconds, strict=True)):
            key = f"stage{s}-{self.name}.{run}"
            above = [
                delayed(sleep_task, pure=False)(seconds, *above, dask_key_name=(key, i))
                for i in range(count)
            ]
        return above[0]


def sleep_jobs(scales=(10, 8, 6, 2, 1, 1, 3, 1)):
    """The jobs of the comparison: sizes and times differ much, as in real workloads."""
    jobs = []
    for number, scale in enumerate(scales):
        draw = random.Random(100 + number)
        counts = (scale * 4, scale * 2, scale, 1)
        jobs.append(
            SleepJob(
                f"J{number}", counts, tuple(draw.choice((0.05, 0.1, 0.2, 0.3, 0.5)) for _ in counts)
            )
        )
    return jobs


def run_jobs(
    cluster, jobs, *, gap_s=0.15, run=0, mark=True, priority=None, meanwhile=None, timeout=120
):
    """Submit jobs one after the other from clients of their own; completion times in order.

    meanwhile: called in a thread of its own when the first job is submitted.
    """
    clients = [cluster.new_client() for _ in jobs]
    graphs = [job.build(run) for job in jobs]
    jct_s, errors = [None] * len(jobs), []
    start, lock = time.time() + 0.5, threading.Lock()

    def submit(i):
        time.sleep(max(0.0, start + gap_s * i - time.time()))
        began = time.time()
        try:
            with lock, contextlib.ExitStack() as stack:
                if mark:
                    name = f"{jobs[i].name}.{run}"
                    stack.enter_context(ganger.dask.job(name, kind=jobs[i].name))
                more = {} if priority is None else {"priority": priority(jobs[i])}
                future = clients[i].compute(graphs[i], optimize_graph=False, **more)
            assert future.result(timeout=timeout) == 1
            jct_s[i] = time.time() - began
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=submit, args=(i,)) for i in range(len(jobs))]
    if meanwhile is not None:
        threads.append(threading.Thread(target=lambda: (time.sleep(0.5), meanwhile())))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    if errors:
        raise errors[0]
    return jct_s
