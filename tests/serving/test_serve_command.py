"""`ganger serve` as people run it: it starts, decides, and ends in good order."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import pytest

from ganger.cli import main
from ganger.serving.asking import SMALL
from ganger.serving.guard import Answer

BODY = msgspec.json.encode(SMALL)


@contextmanager
def serving(*flags):
    command = [sys.executable, "-m", "ganger", "serve", *flags, "--port", "0", "--deadline-s", "5"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"http://\S+(?=/decide)", line):
                yield process, found[0]
                return
        pytest.fail(f"it never served: {''.join(said)}")
    finally:
        process.kill()
        process.communicate()


def child_of(process):
    """Of the only one it has: the scheduler's process."""
    (children,) = Path(f"/proc/{process.pid}/task").glob(f"{process.pid}/children")
    return int(children.read_text())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_decides_until_it_is_told_to_stop(number, tmp_path):
    with serving("general", "--record", str(tmp_path)) as (process, url):
        answer = msgspec.json.decode(httpx.post(f"{url}/decide", content=BODY).content, type=Answer)
        assert (answer.scheduler, answer.fallback) == ("general", None)
        assert sum(answer.executors) == 2
        child = child_of(process)
        process.send_signal(number)
        out, _ = process.communicate(timeout=15)
    assert process.returncode == 0
    assert json.loads(out)["ganger_rounds_total acted"] == 1
    assert len((tmp_path / "decisions.jsonl").read_bytes().splitlines()) == 1
    assert not os.path.exists(f"/proc/{child}"), "nothing is left behind"


def test_a_heuristic_can_be_served_too_and_its_process_may_die():
    with serving("srpt:cap=sqrt,c=1") as (process, url):
        os.kill(child_of(process), signal.SIGKILL)
        answer = msgspec.json.decode(httpx.post(f"{url}/decide", content=BODY).content, type=Answer)
        assert (answer.scheduler, answer.fallback) == ("fair", "died")
        assert httpx.get(f"{url}/metrics").text.count('fallbacks_total{reason="died"} 1.0') == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["no/such/run"], "no/such/run"),
        (["nonsense"], "scheduler 'nonsense' is unknown"),
        (["fair", "--fallback", "general"], "scheduler 'general' is unknown"),
        (["fair", "--fallback", "random", "--port", "70000"], "expected 0 to 65535"),
        (["fair", "--deadline-s", "0"], "deadline_s is 0"),
        (["fair", "--host", "0.0.0.0"], "0.0.0.0 can be reached from other machines"),
        (["fair", "--token-file", "no/such/file"], "no/such/file: holds no token"),
        (["fair", "--record", "/proc/no"], "/proc/no: cannot record there"),
    ],
)
def test_what_cannot_be_served_is_one_line_and_exit_2(flags, said, capsys):
    assert main(["serve", *flags]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("ganger: ") and said in last
