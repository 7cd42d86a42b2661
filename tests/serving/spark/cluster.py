"""A real Spark of one machine: a standalone master and workers on loopback, gone afterwards.

Run as a program it is the toy cluster of docs/drivers/spark.md. It needs PySpark and a JRE.
"""

import argparse
import contextlib
import importlib.util
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

_HOST = "127.0.0.1"
_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def missing():
    """Why no cluster can be started here; None: one can."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed: see scripts/setup-spark"
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "there is no Java: see scripts/setup-spark"
    return None


class SparkCluster:
    """A context manager that leaves nothing behind."""

    def __init__(self, workers=2, cores=2):
        self.workers, self.cores = workers, cores
        self.at = None
        self.processes = {}

    def __enter__(self):
        if (why := missing()) is not None:
            raise RuntimeError(why)
        self.at = Path(tempfile.mkdtemp(prefix="ganger-spark-"))
        home = importlib.util.find_spec("pyspark").submodule_search_locations[0]
        self.port = _free_port()
        self.master = f"spark://{_HOST}:{self.port}"
        self.events = self.at / "events"
        self.events.mkdir()
        self.settings = {
            "spark.authenticate": "true",
            "spark.authenticate.secret": secrets.token_hex(16),
            "spark.master.rest.enabled": "false",
        }
        _write_settings(self.at / "daemons.conf", self.settings)
        application = self.settings | {
            "spark.master": self.master,
            "spark.driver.host": _HOST,
            "spark.driver.bindAddress": _HOST,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": _JAVA,
            "spark.driver.extraJavaOptions": _JAVA,
            "spark.ui.port": str(_free_port()),
            "spark.ui.showConsoleProgress": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.locality.wait": "0",
        }
        conf = self.at / "conf"
        conf.mkdir()
        _write_settings(conf / "spark-defaults.conf", application)
        (conf / "log4j2.properties").write_text(
            "rootLogger.level = warn\nrootLogger.appenderRef.console.ref = console\n"
            "appender.console.type = Console\nappender.console.name = console\n"
            "appender.console.target = SYSTEM_ERR\nappender.console.layout.type = PatternLayout\n"
            "appender.console.layout.pattern = %d %p %c{1}: %m%n\n"
        )
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("SPARK_")
        } | {
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_IP": _HOST,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        try:
            self._daemon("master", "Master", "--port", self.port)
            self._until_log("master", "Started daemon", "I have been elected leader")
            for number in range(self.workers):
                work = str(self.at / "work")
                cores, memory = str(self.cores), "1g"
                self._daemon(
                    f"worker-{number}", "Worker",
                    "--cores", cores, "--memory", memory, "--work-dir", work, self.master,
                )  # fmt: skip
            for number in range(self.workers):
                self._until_log(f"worker-{number}", "Successfully registered with master")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes.values()):
            _end(process)
        if self.at is not None:
            shutil.rmtree(self.at, ignore_errors=True)

    def listening(self):
        """Addresses that the daemons listen on."""
        import psutil

        found = []
        for process in self.processes.values():
            for connection in psutil.Process(process.pid).net_connections("inet"):
                if connection.status == psutil.CONN_LISTEN:
                    found.append(connection.laddr.ip)
        return found

    def left(self):
        """Processes of this cluster, or of its applications, that still run."""
        import psutil

        found = []
        for process in psutil.process_iter(["pid", "cmdline"]):
            with contextlib.suppress(psutil.Error):
                words = [*(process.info["cmdline"] or ()), *process.environ().values()]
                if any(self.at.name in word for word in words):
                    found.append(process.info)
        return found

    def _daemon(self, name, what, *flags):
        log = (self.at / f"{name}.log").open("wb")
        conf = self.at / "daemons.conf"
        java = f"{_JAVA} -Dspark.deploy.maxExecutorRetries=-1"
        command = [
            f"{self.environment['SPARK_HOME']}/bin/spark-class",
            f"org.apache.spark.deploy.{what.lower()}.{what}",
            "--host", _HOST, "--webui-port", "0", "--properties-file", conf, *flags,
        ]  # fmt: skip
        environment = self.environment | {
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": java,
            "SPARK_CONF_DIR": str(self._daemon_conf()),
        }
        with log:
            self.processes[name] = subprocess.Popen(
                list(map(str, command)), env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _daemon_conf(self):
        """Of the daemons, which say when they are ready only where logging is chatty."""
        conf = self.at / "daemon-conf"
        if not conf.exists():
            conf.mkdir()
            chatty = (self.at / "conf" / "log4j2.properties").read_text()
            (conf / "log4j2.properties").write_text(chatty.replace("= warn", "= info"))
        return conf

    def _until_log(self, name, *texts, seconds=60):
        end = time.monotonic() + seconds
        path = self.at / f"{name}.log"
        while not any(text in path.read_text(errors="replace") for text in texts):
            ended = self.processes[name].poll() is not None
            if ended or time.monotonic() > end:
                raise RuntimeError(f"{name} did not start:\n{path.read_text(errors='replace')}")
            time.sleep(0.1)


def _write_settings(path, settings):
    path.touch(mode=0o600)
    path.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))


def _free_port():
    with socket.socket() as one:
        one.bind((_HOST, 0))
        return one.getsockname()[1]


def _end(process, patience_s=10):
    """With all that it started: SIGTERM, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)


def main():
    """The toy cluster, until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=2, help="of each worker")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if (why := missing()) is not None:
        sys.exit(f"toy-spark: {why}")
    with contextlib.suppress(KeyboardInterrupt), SparkCluster(asked.workers, asked.cores) as it:
        print(
            f"Spark runs: {asked.workers} workers with {asked.cores} cores, on this machine only. "
            f"In other terminals:\n"
            f"  export SPARK_CONF_DIR={it.at / 'conf'} SPARK_LOCAL_IP={_HOST}\n"
            f"Ctrl-C ends it and removes it.",
            flush=True,
        )
        signal.pause()


if __name__ == "__main__":
    main()
