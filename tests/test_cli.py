"""The command line: results on standard output, one line for an error, nothing left behind."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ganger
from ganger import cli, streams
from ganger.cli import main
from ganger.commands import terminal
from ganger.policy.checkpoint import checkpoint_path, fingerprint, write_checkpoint
from ganger.policy.layout import initial_vector
from ganger.simulator.objectives import OBJECTIVES
from ganger.streams import Stream
from ganger.training.config import OWN_FIGURES, TrainConfig
from ganger.training.run_directory import RunDirectory
from ganger.workload import (
    Job,
    Pool,
    Recorded,
    Stage,
    Workload,
    load_source,
    read_workload,
    write_workload,
)

REPOSITORY = Path(__file__).parents[1]
SMALL = ("--executors", "6", "--jobs", "4", "--interarrival", "10")
TRAINING = (
    *("train", "--executors", "4", "--jobs", "3", "--environments", "4", "--steps", "16"),
    *("--learning.minibatch", "64"),
)


@pytest.fixture
def ganger_command(capsys):
    """Run a command in this process; gives its exit status, output and errors."""

    def run(*arguments):
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory):
    """A run that has learned nothing."""
    path = tmp_path_factory.mktemp("run")
    metadata = {
        "messages": False,
        "layout": fingerprint(False),
        "workload": "synthetic",
        "executors": 6,
        "jobs": 4,
        "interarrival_s": 10.0,
        "move_delay_s": 1.0,
    }
    vector = initial_vector(streams.rng(0, Stream.LEARNER), False)
    write_checkpoint(checkpoint_path(path, 9), 9, {"policy": vector}, metadata)
    return path


@pytest.fixture
def trace(tmp_path):
    """A native file of two jobs."""
    read = Stage(id="read", task_count=3, durations=Pool((2.0,)))
    total = Stage(id="sum", parents=("read",), task_count=1, durations=Pool((1.0,)))
    jobs = tuple(
        Job(id=name, arrival_s=at, stages=(read, total)) for name, at in (("a", 0.0), ("b", 5.0))
    )
    write_workload(tmp_path / "two.jobs.jsonl", Workload(jobs))
    return tmp_path / "two.jobs.jsonl"


# --- simulate


def test_simulate_prints_one_json_object(ganger_command):
    status, out, err = ganger_command("simulate", *SMALL, "--scheduler", "fair", "--json")

    assert status == 0
    result = json.loads(out)
    assert result["finished"] == result["submitted"] == 4
    assert result["unfinished"] == 0
    assert result["makespan_s"] >= result["p99_jct_s"] >= result["mean_jct_s"] > 0
    assert result["events"] > result["decisions"] > 0
    assert (result["workload"], result["scheduler"], result["seed"]) == ("synthetic", "fair", 0)
    assert "Traceback" not in err


def test_simulate_prints_a_table_for_people(ganger_command):
    _, out, _ = ganger_command("simulate", *SMALL, "--scheduler", "srpt:cap=sqrt,c=0.5")

    assert re.search(r"^scheduler +srpt:cap=sqrt,c=0.5$", out, re.MULTILINE)
    assert re.search(r"^finished +4$", out, re.MULTILINE)


def test_all_figures_are_in_the_json_and_on_demand_in_the_table(ganger_command):
    result = json.loads(ganger_command("simulate", *SMALL, "--json")[1])
    assert result["mean_bounded_slowdown"] >= 1
    assert result["mean_jct_s"] >= result["mean_wait_s"] >= 0
    assert result["max_queue"] >= result["mean_queue"] >= 0

    brief, full = (ganger_command("simulate", *SMALL, *more)[1] for more in ((), ("--metrics",)))
    assert "mean_bounded_slowdown" not in brief
    assert re.search(r"^mean_bounded_slowdown +[0-9.]+$", full, re.MULTILINE)
    assert len(re.findall(r"^mean_jct_s ", full, re.MULTILINE)) == 1
    assert re.search(r"^worst_user +-$", full, re.MULTILINE)


@pytest.fixture
def log(tmp_path):
    """A native file of a gang that ran, one that the log contradicts, and one that never ran."""
    gang = (Stage(id="0", task_count=2, durations=Pool((20.0,)), gang=True),)
    jobs = (
        *(
            Job(id=i, arrival_s=a, stages=gang, user="ann", recorded=r)
            for i, a, r in (
                ("ran", 0.0, Recorded(start_s=5.0, finish_s=25.0)),
                ("odd", 1.0, Recorded(start_s=30.0, finish_s=51.0)),
                ("never", 2.0, Recorded(status="5")),
            )
        ),
    )
    write_workload(tmp_path / "log.jobs.jsonl", Workload(jobs))
    return tmp_path / "log.jobs.jsonl"


def test_a_replay_says_what_happened_and_how_far_the_model_is_from_it(ganger_command, log):
    replayed = ("simulate", "--workload", log, "--executors", 4, "--scheduler", "replay")
    result = json.loads(ganger_command(*replayed, "--json")[1])
    # Waits of 5 and 29 s, runs of 20 s on 2 of 4 executors within 50 s.
    assert (result["submitted"], result["mean_wait_s"], result["mean_jct_s"]) == (2, 17.0, 37.0)
    assert result["utilisation"] == pytest.approx(80 / 200)
    assert result["log"]["not_recorded"] == 1
    assert (result["log"]["deviating"], result["log"]["worst_job"]) == (1, "odd")
    assert result["log"]["log_mean_jct_s"] == 37.5

    status, out, _ = ganger_command(*replayed)
    assert status == 0
    assert re.search(r"^scheduler +replay$", out, re.MULTILINE)
    assert re.search(r"^worst_job +odd$", out, re.MULTILINE)


def test_another_seed_is_another_list_of_jobs(ganger_command):
    results = [
        json.loads(ganger_command("simulate", *SMALL, "--seed", seed, "--json")[1])
        for seed in (1, 2, 1)
    ]
    assert results[0] == results[2]
    assert results[0]["mean_jct_s"] != results[1]["mean_jct_s"]


def test_a_native_file_is_run_as_it_is_and_its_timeline_names_jobs_and_stages(
    ganger_command, trace, tmp_path
):
    timeline = tmp_path / "timeline.csv"
    status, out, _ = ganger_command(
        *("simulate", "--workload", trace, "--executors", 3, "--move-delay", 1),
        *("--timeline", timeline, "--json"),
    )

    # Each job: 1 s of moving, 2 s of read, 1 s of sum.
    assert status == 0
    assert json.loads(out)["mean_jct_s"] == 4.0
    with timeline.open(newline="") as file:
        tasks = list(csv.DictReader(file))
    assert len(tasks) == 8
    assert [t["start_s"] for t in tasks if (t["job"], t["stage"]) == ("b", "sum")] == ["8.0"]


def test_random_jobs_of_a_native_file_are_drawn_when_asked_for(ganger_command, trace):
    _, out, _ = ganger_command(
        *("simulate", "--workload", trace, "--jobs", 7, "--interarrival", 1, "--executors", 3),
        "--json",
    )
    assert json.loads(out)["finished"] == 7


def test_a_job_list_of_tpch_is_run(ganger_command, tpch_dir, reference_dir):
    status, out, _ = ganger_command(
        *("simulate", "--workload", f"tpch:{tpch_dir}", "--executors", 50, "--scheduler", "fair"),
        *("--job-list", reference_dir / "workloads" / "jobs20_seed0.json", "--json"),
    )
    assert status == 0
    assert json.loads(out)["finished"] == 20


def test_a_learned_scheduler_is_named_by_its_run(ganger_command, run_directory):
    named = {(): "argmax", ("--sample",): "sampled", ("--plan",): "plan"}
    for more, mode in named.items():
        status, out, _ = ganger_command(
            "simulate", *SMALL, "--scheduler", run_directory, *more, "--json"
        )
        assert status == 0
        assert json.loads(out)["scheduler"] == f"learned:{mode}"


# --- evaluate and tune


def test_evaluate_compares_the_run_with_heuristics_on_its_own_setting(
    ganger_command, run_directory
):
    status, out, _ = ganger_command(
        *("evaluate", run_directory, "--against", "srpt:cap=sqrt,c=2,fair", "--episodes", 5),
        *("--seed", 3, "--json"),
    )

    assert status == 0
    result = json.loads(out)
    assert [(row["scheduler"], row["mode"]) for row in result["rows"]] == [
        ("learned", "argmax"),
        ("learned", "sampled"),
        ("srpt:cap=sqrt,c=2", "heuristic"),
        ("fair", "heuristic"),
    ]
    for row in result["rows"]:
        assert row["episodes"] == 5
        assert row["mean_jct_s"] > 0
        assert row["standard_error"] >= 0
    assert result["rows"][-1]["ratio"] == 1.0
    assert result["checkpoint_step"] == 9
    given = {"executors": 6, "jobs": 4, "interarrival_s": 10.0, "move_delay_s": 1.0, "seed": 3}
    assert {name: result[name] for name in given} == given


def test_evaluate_shows_what_looking_ahead_brings(ganger_command, run_directory):
    status, out, _ = ganger_command(
        "evaluate", run_directory, "--plan", "--against", "fair", "--episodes", 3, "--json"
    )
    assert status == 0
    ratios = {row["mode"]: row["ratio"] for row in json.loads(out)["rows"]}
    assert [*ratios] == ["argmax", "sampled", "plan", "heuristic"]
    assert ratios["plan"] < ratios["argmax"]


def test_evaluate_takes_another_setting_and_prints_a_table(ganger_command, run_directory):
    status, out, _ = ganger_command(
        *("evaluate", run_directory, "--executors", 3, "--jobs", 2, "--interarrival", 1),
        *("--workload", "synthetic:seed=5", "--episodes", 2),
    )

    assert status == 0
    assert out.startswith(
        "2 lists of 2 jobs on 3 executors, seed 0: synthetic:seed=5, random arrivals, one in 1 s"
    )
    assert len(re.findall(r"^learned +(argmax|sampled) ", out, re.MULTILINE)) == 2


def test_a_run_for_weighted_users_is_evaluated_with_its_weights(ganger_command, tmp_path):
    stages = (Stage(id="x", task_count=2, durations=Pool((2.0,))),)
    users = ("ann", "bob") * 5
    jobs = [Job(id=str(i), arrival_s=i, stages=stages, user=user) for i, user in enumerate(users)]
    workload = tmp_path / "ours.jobs.jsonl"
    write_workload(workload, Workload(tuple(jobs)))
    settings = tmp_path / "settings.toml"
    settings.write_text('objective = "weighted"\n[weights]\nann = 3\n')
    status, _, err = ganger_command(
        *(*TRAINING, "--workload", workload, "--config", settings),
        *("--minutes", "0.001", "--run-dir", tmp_path / "run"),
    )
    assert status == 0, err

    _, out, _ = ganger_command("evaluate", tmp_path / "run", "--episodes", 2, "--json")
    result = json.loads(out)
    assert (result["objective"], result["weights"]) == ("weighted", {"ann": 3.0})
    for row in result["rows"]:
        assert row["weighted_jct_s"] > 0
        assert row["mean_slowdown"] >= 1
        assert row["mean_makespan_s"] > 0
    _, out, _ = ganger_command("evaluate", tmp_path / "run", "--episodes", 2)
    assert re.search(r"slowdown +makespan +weighted JCT$", out, re.MULTILINE)


def test_weights_are_pairs_on_the_command_line():
    given = ["train", "--objective", "weighted", "--weights", "ann", "3", "bob", "0.5"]
    assert cli._parse(given).settings.plain().weights == {"ann": 3.0, "bob": 0.5}


def test_tune_reports_a_scheduler_that_simulate_takes(ganger_command):
    status, out, _ = ganger_command("tune", *SMALL, "--episodes", 4, "--json")

    assert status == 0
    report = json.loads(out)
    assert {family["family"] for family in report["families"]} >= {"fair", "srpt", "kshortest"}
    status, _, _ = ganger_command("simulate", *SMALL, "--scheduler", report["best"])
    assert status == 0


@pytest.fixture
def ours(tmp_path):
    """A file of twenty jobs, one in 5 s."""
    stages = [(Stage(id="x", task_count=2, durations=Pool((1.0 + i,))),) for i in range(20)]
    jobs = [Job(id=str(i), arrival_s=5.0 * i, stages=stages[i]) for i in range(20)]
    write_workload(tmp_path / "ours.jobs.jsonl", Workload(tuple(jobs)))
    return tmp_path / "ours.jobs.jsonl"


def test_jobs_of_a_file_arrive_as_they_did_unless_an_interarrival_is_given(
    ganger_command, ours, run_directory
):
    given = ("evaluate", run_directory, "--workload", ours, "--episodes", 3)
    other = ("evaluate", run_directory, "--workload", "synthetic", "--part", "all")
    assert "all of synthetic includes what this policy was trained on" in ganger_command(*other)[2]
    for more, episodes, arrivals in (
        ((), 1, "windows of the last 20 % of its jobs, which arrive as they did"),
        (("--part", "all"), 3, "windows of all of its jobs, which arrive as they did"),
        (("--interarrival", 7), 3, "random arrivals, one in 7 s on average"),
    ):
        status, out, err = ganger_command(*given, *more, "--json")
        assert status == 0, err
        result = json.loads(out)
        assert result["arrivals"] == arrivals
        assert result["rows"][0]["episodes"] == episodes
    status, out, err = ganger_command("tune", "--workload", ours, "--episodes", 4, "--json")
    assert status == 0
    assert "a list has 16 jobs, not 256" in err
    assert "a list has 4 jobs, not 16: there are no more to test with" in err
    told = json.loads(out)
    assert (told["jobs"], told["lists"]) == (4, 4)
    assert told["families"][0]["held_out"]["episodes"] == 1


def test_a_run_on_all_of_a_file_is_tested_on_another(ganger_command, ours, tmp_path):
    run = tmp_path / "run"
    status, _, err = ganger_command(
        *("train", "--workload", ours, "--part", "all", "--jobs", 30, "--executors", 2),
        *("--environments", 4, "--steps", 8, "--decisions", 64, "--run-dir", run),
    )
    assert status == 0, err
    assert "a list has 20 jobs, not 30" in err
    assert "Jobs: windows of all of its jobs, which arrive as they did" in err
    trained = RunDirectory.open(run).config(TrainConfig)
    assert (trained.jobs, trained.part, trained.interarrival_s) == (20, "all", None)
    status, _, err = ganger_command("evaluate", run)
    assert status == 2
    assert "ours.jobs.jsonl includes what this policy was trained on" in err
    other = tmp_path / "other.jobs.jsonl"
    other.write_bytes(ours.read_bytes())
    status, out, err = ganger_command("evaluate", run, "--workload", other, "--part", "all")
    assert status == 0, err
    assert out.startswith("1 list of 20 jobs")


def test_results_are_the_same_whatever_python_hashes_by(run_directory):
    script = (
        "from ganger.cli import main\n"
        f"main(['simulate', *{SMALL!r}, '--scheduler', 'random', '--json'])\n"
        f"main(['evaluate', {str(run_directory)!r}, '--episodes', '3', '--json'])\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


# --- train


def test_train_leaves_a_run_that_evaluate_takes(ganger_command, tmp_path):
    status, out, err = ganger_command(*TRAINING, "--decisions", 200, "--run-dir", tmp_path / "run")

    assert status == 0
    assert "that is as many decisions as wanted" in out
    assert re.search(r"^Best:  mean JCT \d\.\d{3} of fair's in validation", out, re.MULTILINE)
    command = shlex.split(out.partition("Next:  ")[2])
    assert command == ["ganger", "evaluate", str(tmp_path / "run")]
    assert "Ctrl-C ends it earlier" in err
    run = RunDirectory.open(tmp_path / "run")
    assert run.config(TrainConfig).executors == 4
    assert run.stop_reason == "decisions"
    status, out, _ = ganger_command(*command[1:], "--episodes", 2, "--json")
    assert status == 0
    assert json.loads(out)["executors"] == 4
    status, out, _ = ganger_command("drift", str(tmp_path / "run"), "--interarrival", "2", "--json")
    assert status == 0
    drift = json.loads(out)
    assert drift["windows"] >= 48
    log = tmp_path / "log.jobs.jsonl"
    stage = Stage(id="x", task_count=2, durations=Pool((2.0, 40.0)))
    jobs = [Job(id=str(i), arrival_s=9.0 * i, stages=(stage,)) for i in range(40)]
    write_workload(log, Workload(tuple(jobs)))
    status, out, err = ganger_command("drift", str(tmp_path / "run"), "--workload", log, "--json")
    assert status == 0, err
    assert json.loads(out)["alarm_share"] > 0.5
    assert 0 <= drift["alarm_share"] <= 1


def test_flags_change_single_settings_of_a_file(tmp_path):
    settings = tmp_path / "settings.toml"
    settings.write_text("executors = 7\ninterarrival_s = 30.0\n[learning]\nepochs = 3\n")

    command = cli._parse(["train", "--interarrival", "4", "--config", str(settings)])

    config = command.settings.plain()
    assert type(config) is TrainConfig
    assert (config.executors, config.interarrival_s, config.learning.epochs) == (7, 4.0, 3)
    assert cli._parse(["train", f"--config={settings}"]).settings.executors == 7
    assert cli._parse(["train"]).settings.plain() == TrainConfig()


def test_a_run_may_be_for_several_cluster_sizes_and_loads():
    given = ["train", "--executors", "5", "10", "--interarrival", "4", "25"]
    config = cli._parse(given).settings.plain()
    assert (config.executors, config.interarrival_s) == ((5, 10), (4.0, 25.0))
    config = cli._parse(["train", "--executors", "5", "--interarrival", "4"]).settings.plain()
    assert (config.executors, config.interarrival_s) == (5, 4.0)


def test_the_help_shows_how_several_are_given(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    out = capsys.readouterr().out
    assert "--executors N [N ...]" in out
    assert "--interarrival S [S ...]" in out


def test_a_run_goes_on_where_it_ended_with_other_limits_but_no_other_settings(
    ganger_command, tmp_path
):
    run = ("--run-dir", tmp_path / "run")
    status, _, err = ganger_command(*TRAINING, "--updates", 2, "--sync", *run)
    assert status == 0, err

    status, out, err = ganger_command("train", "--resume", *run, "--updates", 3)
    assert status == 0, err
    assert "Going on with" in err
    assert "3 updates from 192 decisions; that is as many updates as wanted." in out
    assert RunDirectory.open(tmp_path / "run").config(TrainConfig).updates == 3
    given = ["train", "--resume", f"--run_dir={tmp_path / 'run'}"]
    assert cli._parse(given).settings.plain().updates == 3

    status, out, err = ganger_command("train", "--resume", *run, "--executors", 5)
    assert (status, out) == (2, "")
    assert "cannot be resumed with other settings (executors is 5, was 4); only minutes" in err
    assert RunDirectory.open(tmp_path / "run").latest_checkpoint().step == 3

    status, out, err = ganger_command("train", "--resume", *run, "--init", tmp_path / "run")
    assert (status, out) == (2, "")
    assert "--resume goes on from the run's own checkpoint; leave out --init" in err


def test_training_without_torch_says_what_to_install(ganger_command, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, out, err = ganger_command("train")
    assert (status, out) == (2, "")
    assert err == "ganger: ganger train needs an optional package: pip install 'ganger[train]'\n"


@pytest.fixture
def training(tmp_path):
    """A process that trains for hours, once it has begun to learn; its run directory."""
    run = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "ganger", *TRAINING, "--minutes", "600", "--run-dir", str(run)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    while not (run / "metrics.jsonl").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield process, run
    process.kill()
    process.communicate()


def test_ctrl_c_ends_training_with_a_checkpoint(training):
    process, run = training

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert process.returncode == 0, err
    assert "stopped as asked" in out
    assert "a checkpoint is being written" in err
    assert RunDirectory.open(run).stop_reason == "stopped"
    assert RunDirectory.open(run).latest_checkpoint().metadata["executors"] == 4


def test_killing_a_training_run_leaves_no_process_behind(training):
    process, run = training

    process.kill()
    process.communicate(timeout=60)

    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # its whole session
    assert RunDirectory.open(run).metrics()


def test_the_first_signal_asks_and_the_second_one_ends(capfd):
    before = signal.getsignal(signal.SIGTERM)
    with cli._stop_on_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(10)
        for number in (signal.SIGINT, signal.SIGTERM):
            assert signal.getsignal(number) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) == before
    assert "once more ends it at once" in capfd.readouterr().err


# --- errors


def test_heuristics_and_what_really_happened_are_compared_on_a_log_without_a_run(
    ganger_command, tmp_path
):
    # One processor for 100 s, then two for 10 s: "big" blocks the queue, and "small" may overtake.
    rows = [(0, 0, 100, 1), (10, 95, 10, 2), (20, 200, 30, 1)]
    path = tmp_path / "three.swf"
    path.write_text(
        "; MaxProcs: 2\n"
        + "".join(
            f"{i} {at} {wait} {run} {width} -1 -1 {width} {run} -1 1 7 1 -1 -1 -1 -1 -1\n"
            for i, (at, wait, run, width) in enumerate(rows, start=1)
        )
    )
    given = ("evaluate", "--workload", path, "--executors", 2)
    status, out, err = ganger_command(
        *given, "--against", "replay,fcfs,fcfs:backfill=easy", "--whole", "--json"
    )
    assert status == 0
    assert "replayed" not in err
    told = json.loads(out)
    assert (told["run"], told["baseline"], told["jobs"]) == (None, "fcfs:backfill=easy", 3)
    replay, fcfs, easy = told["rows"]
    assert [row["mode"] for row in told["rows"]] == ["log", "heuristic", "heuristic"]
    assert replay["mean_wait_s"] == pytest.approx((0 + 95 + 200) / 3)
    assert fcfs["mean_wait_s"] == pytest.approx((0 + 90 + 90) / 3)
    assert easy["mean_wait_s"] == pytest.approx((0 + 90 + 0) / 3)
    assert (fcfs["p95_wait_s"], fcfs["max_wait_s"]) == (90.0, 90.0)
    assert (easy["p95_wait_s"], easy["max_wait_s"]) == (pytest.approx(81.0), 90.0)
    assert easy["ratio"] == 1.0
    assert fcfs["ratio"] == pytest.approx(320 / 230)
    assert easy["utilisation"] == pytest.approx((100 + 20 + 30) / (2 * 110))
    assert replay["mean_bounded_slowdown"] == pytest.approx((1 + 10.5 + 230 / 30) / 3)

    unrecorded = path.read_text() + "4 30 -1 9 1 -1 -1 1 9 -1 1 7 1 -1 -1 -1 -1 -1\n"
    path.write_text(unrecorded)
    status, out, err = ganger_command(*given, "--against", "replay,fcfs", "--whole", "--json")
    assert status == 0
    assert "1 of 4 jobs left out, for all schedulers" in err
    assert json.loads(out)["not_recorded"] == 1
    assert json.loads(out)["rows"] == [{**row, "episodes": 1} for row in (replay, fcfs)]
    path.write_text(unrecorded.rpartition("4 30")[0])

    status, out, err = ganger_command(*given, "--against", "replay,fcfs", "--jobs", 1)
    assert status == 0
    assert "--whole --part all is fair to both" in err
    assert out.startswith("3 lists of 1 jobs on 2 executors")
    head = out.splitlines()[2]
    assert "to fcfs:backfill=easy's" in head
    assert re.search(r"mean wait +p95 wait +longest wait +bounded slowdown +utilisation$", head)
    status, _, err = ganger_command(*given, "--against", "replay", "--interarrival", 9)
    assert (status, err.splitlines()[-1]) == (
        2,
        "ganger: only a log with its own arrivals can be replayed",
    )
    status, out, _ = ganger_command(*given, "--against", "fcfs", "--baseline", "sjf", "--json")
    assert json.loads(out)["rows"][0]["baseline"] == "sjf"
    status, out, _ = ganger_command(*given, "--against", "fcfs", "--whole", "--part", "test")
    assert out.startswith("1 list of 1 jobs")
    assert "three.swf, the last 20 % of its jobs, which arrive as they did" in out


def test_jobs_that_cannot_fit_are_left_out_and_long_ones_killed_on_demand(ganger_command, swf):
    # Of 4, 8 and 12 processors; each runs for 60 s and asked for 100 s.
    given = ("--workload", swf, "--executors", 8)
    for command in ("simulate --scheduler fcfs", "evaluate --against fcfs"):
        status, _, err = ganger_command(*command.split(), *given)
        assert (status, err.splitlines()[-1]) == (
            2,
            "ganger: 1 job can never run on 8 executors: at once '3' asks for 12",
        )
        status, out, err = ganger_command(*command.split(), *given, "--reject-unfit", "--json")
        assert status == 0
        assert "1 of 3 jobs left out: they can never run on 8 executors" in err
        assert json.loads(out)["rejected"] == 1
    run = swf.parent / "run"
    training = ("train", *given, "--part", "all", "--environments", 2, "--steps", 4, "--updates", 1)
    status, _, err = ganger_command(*training, "--run-dir", run)
    assert status == 2
    assert err.endswith("at once '3' asks for 12\n")
    status, _, err = ganger_command(*training, "--run-dir", run, "--reject-unfit")
    assert status == 0, err
    assert RunDirectory.open(run).config(TrainConfig).jobs == 2
    _, _, err = ganger_command(*command.split(), "--workload", swf, "--executors", 16)
    assert "ganger: note: the cluster has 16 executors; the log says 8\n" in err
    swf.write_text(SWF.replace(" 100 -1 1 7", " 50 -1 1 7"))
    given = (*given, "--executors", 12, "--kill-at-limit", "--json")
    told = json.loads(ganger_command("simulate", "--scheduler", "fcfs", *given)[1])
    assert (told["killed"], told["mean_jct_s"], told["submitted"]) == (3, 50.0, 3)
    told = json.loads(ganger_command("evaluate", "--against", "fcfs", "--whole", *given)[1])
    assert (told["rows"][0]["killed"], told["rows"][0]["mean_jct_s"]) == (3, 50.0)


def test_tune_tries_queues_on_gangs_sharing_on_dags_and_both_on_a_mixture(ganger_command, tmp_path):
    gang = Stage(id="x", task_count=2, durations=Pool((3.0,)), gang=True, limit_s=4.0)
    stage = Stage(id="x", task_count=2, durations=Pool((3.0,)))
    tried = {}
    for name, kinds in (("gangs", [gang]), ("dags", [stage]), ("both", [gang, stage])):
        path = tmp_path / f"{name}.jobs.jsonl"
        jobs = (
            Job(id=str(i), arrival_s=2.0 * i, stages=(kinds[i % len(kinds)],)) for i in range(40)
        )
        write_workload(path, Workload(tuple(jobs)))
        status, out, err = ganger_command(
            *("tune", "--workload", path, "--executors", 3, "--jobs", 4, "--episodes", 4, "--json")
        )
        assert status == 0, err
        told = json.loads(out)
        tried[name] = {family["family"] for family in told["families"]}
        assert told["baseline"] == ("fcfs:backfill=easy" if name == "gangs" else "fair")
    assert {"fcfs", "sjf", "saf", "wfp3", "unicep", "f1", "f4"} <= tried["gangs"]
    assert not tried["gangs"] & tried["dags"]
    assert tried["both"] == tried["gangs"] | tried["dags"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("simulate --workload nonsense", "workload 'nonsense' is unknown; expected synthetic"),
        ("simulate --scheduler nonsense", "there are fifo, fair"),
        ("simulate --scheduler srpt:size=3", "srpt has no parameter 'size'"),
        ("simulate --scheduler ./absent", "absent: there is no such run directory"),
        ("simulate --executors 0", "executors is 0; a cluster has 1 or more"),
        ("simulate --scheduler replay", "no job has a recorded start and finish"),
        ("simulate --scheduler replay --timeline x.csv", "leave out --timeline, --sample"),
        ("simulate --sample", "only learned schedulers sample or plan; fair is none"),
        ("simulate --plan", "only learned schedulers sample or plan; fair is none"),
        ("simulate --plan --sample --scheduler runs/a", "a plan takes the best action"),
        ("simulate --scheduler replay --plan", "leave out --timeline, --sample, --plan"),
        ("evaluate --plan", "--plan is for a learned scheduler; name its run"),
        ("simulate --job-list x.json --jobs 3", "leave out --jobs"),
        ("simulate --job-list x.json", "expected --workload tpch:DIR"),
        ("simulate --jobs 2 --timeline /no/such/place.csv", "cannot be written: No such file"),
        ("train --actors 5", "96 environments cannot be shared out evenly among 5 acting threads"),
        ("train --objective speed", "objective is 'speed'; there are mean, weighted, slowdown"),
        ("train --objective weighted", "objective weighted needs weights"),
        ("train --weights ann 2", "weights are for objective weighted; objective is mean"),
        ("train --objective weighted --weights ann 0", "weights: ann has 0.0; expected more"),
        ("train --resume", "--resume needs a run to go on with: --run-dir DIR"),
        ("train --resume --run-dir absent", "absent: there is no such run directory"),
        ("train --resume --run-dir tests", "tests: is not a run directory"),
        ("train --init absent", "absent: there is no such run directory or checkpoint"),
        ("train --sync", "a synchronous run needs a limit of decisions or updates"),
        ("train --patience 3 --validate-every 0", "patience needs validations"),
        ("train --minutes 0", "minutes is 0.0; expected more than 0"),
        ("train --classes a:2:cores=4", "train knows executors of one size only; leave out"),
        ("tune --executors 2 --classes=a:2:cores=4", "leave out --classes, which simulate and"),
        ("train --config absent.toml", "absent.toml: cannot be read: No such file"),
        ("evaluate absent", "absent: there is no such run directory or checkpoint"),
        ("evaluate --jobs 0", "jobs is 0; expected 1 or more"),
        ("tune --jobs 0", "jobs is 0; expected 1 or more"),
        ("evaluate --whole", "--whole is for a log with its own arrivals"),
        ("evaluate --against fair,nobody", "scheduler 'nobody' is unknown"),
        ("evaluate --baseline nobody", "scheduler 'nobody' is unknown"),
        ("evaluate --against replay", "only a log with its own arrivals can be replayed"),
        ("tune --episodes 1", "episodes is 1; expected 4 or more"),
    ],
)
def test_an_error_is_one_line_and_status_2(ganger_command, arguments, message):
    status, out, err = ganger_command(*arguments.split())
    *notices, line = err.splitlines()
    assert (status, out) == (2, "")
    assert line.startswith("ganger: ")
    assert message in line
    assert all(notice.startswith(("Compil", "Training into ")) for notice in notices)


def test_the_first_jobs_of_a_file_keep_their_arrivals(ganger_command, trace):
    given = ("simulate", "--workload", trace, "--executors", 3, "--json")
    told = json.loads(ganger_command(*given, "--jobs", 1)[1])
    assert (told["finished"], told["mean_jct_s"]) == (1, 5.0)  # 2 s to move, 2 s and 1 s
    assert json.loads(ganger_command(*given, "--jobs", 9)[1])["finished"] == 2
    assert ganger_command(*given, "--jobs", 0)[0] == 2


def test_interarrival_of_a_trace_needs_a_number_of_jobs(ganger_command, trace):
    status, _, err = ganger_command("simulate", "--workload", trace, "--interarrival", 3)
    assert status == 2
    assert "say how many with --jobs" in err


@pytest.mark.parametrize("arguments", [["simulate", "--frobnicate"], ["frobnicate"], []])
def test_what_does_not_exist_is_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().out == ""


def test_ctrl_c_is_one_line_too(ganger_command, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_parse", interrupt)
    assert ganger_command("version") == (130, "", "ganger: interrupted\n")


def test_a_reader_that_has_seen_enough_is_no_error():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "ganger", "--help"], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


# --- starting up, and what is shown


def test_help_imports_nothing_heavy():
    script = (
        "import sys\n"
        "from ganger.cli import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0\n"
        "heavy = {'numpy', 'numba', 'torch', 'tensorboard', 'rich', 'typeguard', 'zstandard'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for command in (
        "simulate", "train", "evaluate", "explain", "tune", "warmup", "benchmark", "version"
    ):  # fmt: skip
        assert f" {command} " in done.stdout


def test_explain_takes_apart_a_decision_of_the_simulation(ganger_command, run_directory):
    about = ("--executors", 6, "--seed", 5)
    status, out, _ = ganger_command("explain", run_directory, *about, "--decision", 12, "--json")
    assert status == 0
    told = json.loads(out)
    decision = told["decision"]
    simulated = ("--jobs", 4, "--interarrival", 10, "--move-delay", 1, "--scheduler", run_directory)
    _, out, _ = ganger_command("simulate", *simulated, *about, "--json")
    result = json.loads(out)
    assert decision["decisions"] == told["habits"]["decisions"] == result["decisions"]
    policy, *others = decision["alternatives"]
    assert policy["mean_jct_s"] == pytest.approx(result["mean_jct_s"], rel=1e-12)
    assert [other["scheduler"] for other in others] == ["fair", "srpt"]

    status, out, _ = ganger_command("explain", run_directory, *about, "--decision", 12)
    assert status == 0
    assert f"Decision 12 of {result['decisions']}, at {decision['time_s']:,.1f} s" in out
    assert f"Chosen: stage {decision['stage']} of job {decision['job']}, limit " in out
    for part in ("by occlusion", "Stages that could be chosen", "which is hindsight", "Habits."):
        assert part in out


def test_explain_alone_tells_of_habits(ganger_command, run_directory):
    status, out, _ = ganger_command("explain", run_directory)
    assert status == 0
    assert "Habits. Over " in out
    assert "Chosen" not in out
    status, out, _ = ganger_command("explain", run_directory, "--json")
    told = json.loads(out)
    assert told["decision"] is None
    assert told["habits"]["text"].startswith("Over ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fair", "--decision", 1), "fair is a heuristic, which has no probabilities to explain"),
        (("srpt:cap=sqrt", "--at", 0), "srpt:cap=sqrt is a heuristic"),
        (("runs/absent", "--decision", 1), "runs/absent: there is no such run directory"),
        (("general", "--jobs", 2, "--decision", 100_000), "no decision 100000; expected 1 to "),
        (("general", "--jobs", 2, "--at", 1e9), "no decision is made at 1e+09 s or later; the la"),
        (("general", "--decision", 1, "--at", 0), "both say which decision; leave out one"),
        (("general", "--workload", "absent.swf"), "'absent.swf' is unknown"),
        (("general", "--against", "general", "--at", 0), "scheduler 'general' is unknown"),
        (("general", "--jobs", 0), "--jobs is 0; expected 1 or more"),
    ],
)
def test_what_cannot_be_explained_is_told_in_one_line(
    ganger_command, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    status, out, errors = ganger_command("explain", *arguments)
    assert (status, out) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith("ganger: ")
    assert message in line


@pytest.mark.parametrize("argument", ["version", "--version"])
def test_version(ganger_command, argument):
    assert ganger_command(argument) == (0, f"ganger {ganger.__version__}\n", "")


def test_warmup_says_what_it_compiles_and_where_it_is_kept(ganger_command):
    status, out, _ = ganger_command("warmup")
    assert status == 0
    assert out.startswith("Machine code is kept in ")
    for what in ("simulator and heuristics", "policy", "schedulers in Python", "training", "all"):
        assert re.search(rf"^{what} +\d+\.\d s$", out, re.MULTILINE)


def test_without_a_cache_directory_warmup_says_so_at_once(tmp_path):
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-m", "ganger", "warmup"],
        env=os.environ | {"GANGER_CACHE": str(tmp_path / "file" / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "cannot be written to, so nothing would be kept; set GANGER_CACHE" in done.stderr


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "_PLAIN_LINE_S", 0.0)
    with terminal.Progress("evaluating") as progress:
        progress.update(1, 4, "1 of 4 episodes")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "evaluating  25%: 1 of 4 episodes\n")


def test_progress_is_a_bar_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with terminal.Progress("evaluating") as progress:
        progress.update(1, 4, "1 of 4 episodes")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "25%" in captured.err


def test_a_line_of_training_progress_says_how_it_goes():
    metrics = {
        "decisions": 12_000,
        "decisions_per_s": 8000.4,
        "recent_ratio": 0.876,
        "validation_ratio": None,
        "validation_to_heuristic": None,
        "lag_mean": 1.0,
        "learner_idle_share": 0.02,
        "actor_idle_share": 0.5,
    }
    assert cli._training_line(metrics, "mean") == (
        "12,000 decisions, 8,000/s, mean JCT 0.876 of fair's, lag 1.0, idle: learner 2%, actors 50%"
    )
    assert "no episode yet" in cli._training_line(metrics | {"recent_ratio": None}, "mean")
    assert "makespan 0.876 of fair's" in cli._training_line(metrics, "makespan")
    metrics |= {"validation_ratio": 0.91, "validation_to_heuristic": 1.04}
    assert (
        "mean JCT 0.876 of fair's, in validation 0.910, 1.040 of the best heuristic's, lag"
    ) in cli._training_line(metrics, "mean")


def test_every_objective_has_a_name_in_the_line_of_progress():
    assert set(OWN_FIGURES) == set(OBJECTIVES)


def test_the_commands_in_the_readme_parse():
    text = (REPOSITORY / "README.md").read_text()
    commands = re.findall(r"^\$? ?ganger (.+)$", text, re.MULTILINE)
    assert commands
    for command in commands:
        cli._parse(shlex.split(command, comments=True))


# --- inspect


SWF = "; MaxProcs: 8\n" + "".join(
    f"{i} {600 * i} 3 60 {4 * i} -1 -1 {4 * i} 100 -1 1 7 1 -1 -1 -1 -1 -1\n" for i in range(1, 4)
)


@pytest.fixture
def swf(tmp_path):
    """A log of three jobs of 4, 8 and 12 processors, and a dirty line."""
    path = tmp_path / "three.swf"
    path.write_text(SWF + "dirt\n")
    return path


def test_inspect_tells_what_is_in_a_log_what_was_dropped_and_what_cannot_run(ganger_command, swf):
    status, out, _ = ganger_command("inspect", swf)

    assert status == 0
    assert "Standard Workload Format, 4 rows in 1 file" in out
    assert re.search(r"^jobs +3, 3 with gangs$", out, re.MULTILINE)
    assert f"dropped 1: fewer than 18 columns ({swf}:5)" in out
    assert "error: 1 job can never run on 8 executors: at once '3' asks for 12" in out
    assert "▁" not in out


def test_inspect_prints_one_json_object(ganger_command, swf):
    told = json.loads(ganger_command("inspect", swf, "--executors", 16, "--json")[1])

    assert (told["jobs"], told["tasks"], told["executors"], told["verdicts"]) == (3, 24, 16, [])
    assert told["load"] == pytest.approx(24 * 60 / (1200 * 16))
    assert told["findings"][0]["places"] == [f"{swf}:5"]


def test_inspect_draws_lines_on_a_terminal(ganger_command, swf, monkeypatch):
    monkeypatch.setattr(cli, "_draws", lambda: True)
    _, out, _ = ganger_command("inspect", swf)

    assert re.search(r"^tasks of a job .* █.*█$", out, re.MULTILINE)


def test_strict_inspection_refuses_a_dirty_log(ganger_command, swf):
    status, out, err = ganger_command("inspect", swf, "--strict")

    assert (status, out) == (2, "")
    assert err == f"ganger: {swf}:5: fewer than 18 columns; dropped without --strict\n"


def test_what_can_never_run_is_refused_before_a_run_and_the_rest_is_told(ganger_command, swf):
    status, out, err = ganger_command("simulate", "--workload", swf, "--executors", 8)

    assert (status, out) == (2, "")
    assert "1 dropped: fewer than 18 columns" in err
    assert err.endswith("1 job can never run on 8 executors: at once '3' asks for 12\n")
    for command in ("tune --episodes 2", "train --minutes 1 --run-dir never", "simulate --jobs 2"):
        status, _, err = ganger_command(
            *command.split(), "--workload", swf, "--executors", 3, "--interarrival", 100
        )
        assert status == 2, command
        assert "can never run on 3 executors" in err
    assert not Path("never").exists()


# --- convert and split


def test_convert_writes_a_native_file_of_what_was_asked_for(ganger_command, swf, tmp_path):
    out = tmp_path / "out.jobs.jsonl.zst"
    status, said, err = ganger_command(
        *("convert", swf, out, "--window", ":900", "--scale-load", "2", "--anonymise")
    )

    assert (status, said) == (0, f"{out}: 2 jobs\n")
    assert "1 dropped: fewer than 18 columns" in err
    jobs = read_workload(out).jobs
    assert [(job.id, job.arrival_s, job.user) for job in jobs] == [("1", 0, "u1"), ("2", 300, "u1")]
    assert ganger_command("convert", swf, tmp_path / "all.jobs.jsonl", "--sample", "3")[0] == 0
    assert read_workload(tmp_path / "all.jobs.jsonl") == load_source(str(swf)).workload()


def test_split_divides_by_time(ganger_command, swf, tmp_path):
    train, test = tmp_path / "train.jobs.jsonl", tmp_path / "test.jobs.jsonl"
    status, said, _ = ganger_command("split", swf, train, test, "--at", "50%")

    assert (status, said) == (0, f"{train}: 1 job\n{test}: 2 jobs\n")
    assert [job.id for job in read_workload(test).jobs] == ["2", "3"]


def test_what_cannot_be_converted_is_refused_and_leaves_no_file(ganger_command, swf, tmp_path):
    for command, message in [
        (f"convert {swf} {tmp_path}/x.csv", "ends in .jobs.jsonl or .jobs.jsonl.zst"),
        (f"convert {swf} {tmp_path}/x.jobs.jsonl --strict", "dropped without --strict"),
        (f"convert {swf} {tmp_path}/x.jobs.jsonl --window 9w:", "none of 3 jobs"),
        (f"convert synthetic {tmp_path}/x.jobs.jsonl", "no arrivals"),
        (f"split {swf} {tmp_path}/x.jobs.jsonl {tmp_path}/x.jobs.jsonl", "are one file"),
        (f"split {swf} {tmp_path}/x.jobs.jsonl {tmp_path}/y.jobs.jsonl --at 0", "before 0"),
    ]:
        status, out, err = ganger_command(*command.split())
        assert (status, out) == (2, "")
        assert message in err
    assert not list(tmp_path.glob("*.jobs.jsonl"))
