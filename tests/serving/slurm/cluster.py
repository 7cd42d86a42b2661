"""A real Slurm on loopback, of Debian's packages, in a directory that is gone afterwards.

Run as a program it is the toy cluster of docs/drivers/slurm.md. Nothing but the standard library.
"""

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "squeue", "scontrol", "sbatch")
ACCOUNTING = ("slurmdbd", "mariadbd", "mariadb-install-db", "mariadb", "sacctmgr")
_PATH = "/usr/sbin:/sbin:/usr/local/sbin:" + os.environ.get("PATH", "")

_CONF = """\
ClusterName=toy
SlurmctldHost=localhost(127.0.0.1)
SlurmctldAddr=127.0.0.1
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
AuthInfo=socket={at}/munge.sock,cred_expire={cred_expire}
CredType=cred/munge
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool-%n
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd-%n.pid
SlurmctldLogFile={at}/slurmctld.log
SlurmdLogFile={at}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=50000,batch_sched_delay=0,defer_batch
PriorityType=priority/basic
ReturnToService=2
SlurmdTimeout={node_timeout}
JobCompType=jobcomp/filetxt
JobCompLoc={at}/jobcomp.txt
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
MinJobAge={min_job_age}
InactiveLimit=0
KillWait=2
{accounting}
{nodes}
PartitionName=toy Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

_DBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={at}/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
LogFile={at}/slurmdbd.log
PidFile={at}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct
"""


def missing(programs=PROGRAMS):
    """Why no cluster can be started here; None: one can."""
    absent = [name for name in programs if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"{', '.join(absent)} not installed: see scripts/setup-slurm"
    if os.geteuid() != 0:
        return "only root can start a Slurm that starts jobs"
    return None


class SlurmCluster:
    """A slurmctld and some slurmds; a context manager that leaves nothing behind."""

    def __init__(
        self,
        nodes=2,
        cpus=4,
        *,
        accounting=False,
        min_job_age=300,
        node_timeout=10,
        cred_expire=120,
    ):
        """Prepare one; cred_expire: seconds that tasks of a dead node wait to run again, too."""
        self.nodes, self.cpus, self.accounting = nodes, cpus, accounting
        self._settings = {
            "min_job_age": min_job_age,
            "node_timeout": node_timeout,
            "cred_expire": cred_expire,
        }
        self.at = None
        self.processes = {}

    def __enter__(self):
        if (why := missing(PROGRAMS + (ACCOUNTING if self.accounting else ()))) is not None:
            raise RuntimeError(why)
        self.at = Path(tempfile.mkdtemp(prefix="ganger-slurm-"))
        self.at.chmod(0o755)  # munged demands it
        self.environment = os.environ | {"SLURM_CONF": str(self.at / "slurm.conf"), "PATH": _PATH}
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if "slurmctld" in self.processes:
            with contextlib.suppress(Exception):
                self.run("scancel", "--user=root", "--full", timeout=5)
                self.run("scancel", "--state=PENDING", "--user=root", timeout=5)
        for name in reversed(list(self.processes)):
            self.stop(name)
        self._end_steps()
        if self.at is not None:
            shutil.rmtree(self.at, ignore_errors=True)

    def run(self, *command, timeout=20, check=True):
        """Standard output of a command that knows this cluster."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=timeout,
            check=False, cwd=self.at,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def submit(self, name, seconds, *flags, tasks=None):
        """Submit an array of so many sleeping tasks, or a single job; its id."""
        array = () if tasks is None else (f"--array=0-{tasks - 1}",)
        flags = ("--parsable", f"--job-name={name}", "--output=/dev/null", *array, *flags)
        # The time a task starts and ends, in a line that cannot be torn apart.
        task = (
            f'b=$(date +%s.%N); sleep {seconds}; echo "$SLURM_JOB_NAME '
            f'${{SLURM_ARRAY_TASK_ID:-0}} $b $(date +%s.%N)" >>{self.at}/times'
        )
        return int(self.run("sbatch", *flags, f"--wrap={task}").strip())

    def times(self):
        """Name of a job to (start, end) of each of its tasks that has ended, as they ended."""
        found = {}
        with contextlib.suppress(FileNotFoundError):
            for line in (self.at / "times").read_text().splitlines():
                name, _, start, end = line.split()
                found.setdefault(name, []).append((float(start), float(end)))
        return found

    def task_numbers(self, name):
        """Of those tasks of a job that have ended."""
        lines = (self.at / "times").read_text().splitlines()
        return {int(line.split()[1]) for line in lines if line.split()[0] == name}

    def jobs(self):
        """All that squeue knows."""
        return json.loads(self.run("squeue", "--json"))["jobs"]

    def wait_idle(self, seconds=60):
        """Until no job waits or runs."""
        end = time.monotonic() + seconds
        while self.run("squeue", "--noheader").strip():
            if time.monotonic() > end:
                raise AssertionError(f"jobs are left:\n{self.run('squeue')}")
            time.sleep(0.1)

    def start_controller(self):
        self._daemon("slurmctld", "slurmctld", "-D")
        self._until(lambda: "UP" in self.run("scontrol", "ping", timeout=5))

    def start_node(self, name):
        self._daemon(name, "slurmd", "-D", "-N", name)

    def wait_nodes(self):
        """Until all nodes can run jobs."""
        count = str(self.nodes)
        states = "idle,mixed,allocated"
        self._until(
            lambda: (
                self.run("sinfo", "-h", "-r", f"--states={states}", "-o%D").split() == [count]
                or sum(
                    map(int, self.run("sinfo", "-h", "-r", f"--states={states}", "-o%D").split())
                )
                == self.nodes
            )
        )

    def kill(self, name):
        """End a daemon at once, as a crash would."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self, name):
        process = self.processes.pop(name)
        process.terminate()
        try:
            process.wait(8)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self):
        at = self.at
        for name in ("state", "mail", *(f"spool-n{i}" for i in range(self.nodes))):
            (at / name).mkdir()
        (at / "munge.key").write_bytes(secrets.token_bytes(128))
        (at / "munge.key").chmod(0o600)
        ports = free_ports(self.nodes + 3)
        accounting = "AccountingStorageType=accounting_storage/none"
        if self.accounting:
            accounting = (
                "AccountingStorageType=accounting_storage/slurmdbd\n"
                f"AccountingStorageHost=127.0.0.1\nAccountingStoragePort={ports[1]}\n"
                f"AccountingStoragePass={at}/munge.sock"
            )
        nodes = "\n".join(
            f"NodeName=n{i} NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[3 + i]} "
            f"CPUs={self.cpus} RealMemory=1000 State=UNKNOWN"
            for i in range(self.nodes)
        )
        (at / "slurm.conf").write_text(
            _CONF.format(at=at, port=ports[0], nodes=nodes, accounting=accounting, **self._settings)
        )
        self._daemon(
            "munged", "munged", "--foreground", "--force", f"--key-file={at}/munge.key",
            f"--socket={at}/munge.sock", f"--pid-file={at}/munge.pid",
            f"--log-file={at}/munge.log", f"--seed-file={at}/munge.seed", "--num-threads=2",
        )  # fmt: skip
        self._until((at / "munge.sock").exists)
        if self.accounting:
            self._start_accounting(ports[1], ports[2])
        self.start_controller()
        for i in range(self.nodes):
            self.start_node(f"n{i}")
        self.wait_nodes()

    def _start_accounting(self, port, database_port):
        at, password = self.at, secrets.token_hex(16)
        data = at / "database"
        own = ("--no-defaults", f"--datadir={data}", "--user=root")
        self.run("mariadb-install-db", *own, "--auth-root-authentication-method=normal",
                 "--skip-test-db", timeout=60)  # fmt: skip
        self._daemon(
            "mariadbd", "mariadbd", *own, f"--socket={at}/db.sock", f"--port={database_port}",
            "--bind-address=127.0.0.1", f"--pid-file={at}/db.pid", "--innodb-buffer-pool-size=16M",
            "--innodb-log-file-size=8M", "--skip-log-bin",
        )  # fmt: skip
        client = ("mariadb", "--no-defaults", f"--socket={at}/db.sock", "--user=root")
        self._until(lambda: self.run(*client, "-e", "select 1"))
        self.run(
            *client, "-e",
            f"create user slurm@'127.0.0.1' identified by '{password}';"
            "create user slurm@localhost identified by '" + password + "';"
            "grant all on slurm_acct.* to slurm@'127.0.0.1';"
            "grant all on slurm_acct.* to slurm@localhost",
        )  # fmt: skip
        conf = at / "slurmdbd.conf"
        conf.write_text(
            _DBD_CONF.format(at=at, port=port, database_port=database_port, password=password)
        )
        conf.chmod(0o600)
        self._daemon("slurmdbd", "slurmdbd", "-D")
        self._until(lambda: self.run("sacctmgr", "--parsable2", "show", "cluster"))
        self.run("sacctmgr", "--immediate", "add", "cluster", "toy")

    def _daemon(self, name, *command):
        with (self.at / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                cwd=self.at, start_new_session=True,
            )  # fmt: skip

    def _until(self, ready, seconds=30):
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
                if ready():
                    return
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended:\n{self.log(name)}")
            if time.monotonic() > end:
                raise RuntimeError(f"not ready after {seconds} s\n{self.log('slurmctld')}")
            time.sleep(0.05)

    def log(self, name):
        """The last lines that a daemon wrote."""
        text = ""
        for path in (self.at / f"{name}.out", self.at / f"{name}.log"):
            with contextlib.suppress(FileNotFoundError):
                text += path.read_text(errors="replace")[-3000:]
        return text

    def _end_steps(self):
        """Steps outlive their slurmd, in sessions of their own; all of them know our directory."""
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 5
        while self.left() and time.monotonic() < end:
            time.sleep(0.02)

    def left(self):
        """Processes that were started by this cluster and still run."""
        found = []
        for environment in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                pid = int(environment.parent.name)
                if pid != os.getpid() and str(self.at).encode() in environment.read_bytes():
                    found.append(pid)
        return found


def free_ports(count):
    """Ports of loopback that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def main():
    parser = argparse.ArgumentParser(description="Start a Slurm on loopback; Ctrl-C ends it.")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--cpus", type=int, default=4, help="of each node")
    parser.add_argument("--accounting", action="store_true", help="with slurmdbd, for sacct")
    given = parser.parse_args()
    if (why := missing(PROGRAMS + (ACCOUNTING if given.accounting else ()))) is not None:
        sys.exit(f"toy-slurm: {why}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with SlurmCluster(given.nodes, given.cpus, accounting=given.accounting) as cluster:
        count = given.nodes * given.cpus
        print(f"Slurm runs: partition toy, {count} CPUs, on this machine only. In other terminals:")
        print(f"  export SLURM_CONF={cluster.at}/slurm.conf")
        print("Ctrl-C ends it and removes it.", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
