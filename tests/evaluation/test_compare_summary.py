"""What a comparison says is what its rows say; and by hand where it can be."""

import csv
import json

import numpy as np
import pytest

from ganger.cli import main

pyarrow = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
from pyarrow import parquet  # noqa: E402

from ganger.errors import ConfigError  # noqa: E402
from ganger.evaluation import JobLists  # noqa: E402
from ganger.evaluation.job_rows import Part, Results, columns  # noqa: E402
from ganger.evaluation.summary import (  # noqa: E402
    Jobs,
    class_name,
    figures,
    interval,
    pairs,
    size_classes,
    summarise,
    window_ends_s,
)
from ganger.evaluation.sweep import enough_executors, loads_of, under_load  # noqa: E402
from ganger.schedulers import Fair, Fifo  # noqa: E402
from ganger.simulator.simulate import Cluster  # noqa: E402
from ganger.workload import (  # noqa: E402
    Job,
    Pool,
    Stage,
    Workload,
    load_source,
    write_workload,
)
from ganger.workload.verdicts import measured_work_s, offered_load  # noqa: E402

SMALL = ("compare", "--executors", "6", "--jobs", "4", "--interarrival", "300", "--seed", "3")


def compare(out, *flags):
    return main([*SMALL, "--episodes", "5", "--against", "fair,fifo", "--out", str(out), *flags])


def test_every_figure_is_that_of_the_rows(tmp_path, capsys):
    assert compare(tmp_path / "c", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary == json.loads((tmp_path / "c" / "summary.json").read_text())
    with (tmp_path / "c" / "jobs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 5 * 4 == parquet.read_table(tmp_path / "c" / "jobs.parquet").num_rows
    means = {}
    for own in summary["schedulers"]:
        of = [row for row in rows if row["scheduler"] == own["scheduler"]]
        jct_s = np.array([float(row["turnaround_time"]) for row in of]).reshape(5, 4)
        means[own["scheduler"]] = jct_s.mean(axis=1)
        assert own["mean_jct_s"] == pytest.approx(jct_s.mean())
        assert own["p95_jct_s"] == pytest.approx(np.percentile(jct_s, 95))
        waits = [float(row["waiting_time"]) for row in of]
        assert own["mean_wait_s"] == pytest.approx(np.mean(waits))
        work_s = np.array([float(row["work_s"]) for row in of])
        assert sum(group["jobs"] for group in own["by_size"]) == 20
        least = own["by_size"][0]
        assert least["jobs"] == ((work_s < 100) if "less" in least["name"] else (
            (work_s >= 100) & (work_s < 1000))).sum()  # fmt: skip
    (pair,) = summary["pairs"]
    ratios = means[pair["a"]] / means[pair["b"]]
    assert pair["ratio"] == pytest.approx(ratios.mean()) and pair["ratio"] < 1
    assert pair["worst_ratio"] == pytest.approx(ratios.max())
    assert pair["low"] <= pair["ratio"] <= pair["high"]
    assert pair["better_in"] == (ratios < 1).sum()


def test_it_is_what_evaluate_says(tmp_path, capsys):
    assert compare(tmp_path / "c", "--json") == 0
    compared = json.loads(capsys.readouterr().out)["schedulers"]
    evaluating = ("evaluate", *SMALL[1:], "--episodes", "5", "--against", "fair,fifo", "--json")
    assert main(list(evaluating)) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    for one, other in zip(compared, rows, strict=True):
        for name in ("mean_jct_s", "p99_jct_s", "mean_slowdown", "mean_makespan_s", "utilisation"):
            assert one[name] == pytest.approx(other[name]), name


def test_it_goes_on_where_it_stopped(tmp_path, capsys, monkeypatch):
    assert compare(tmp_path / "c", "--json") == 0
    whole = capsys.readouterr().out
    gone = sorted((tmp_path / "c" / "parts").iterdir())[0]
    others = {file: file.stat().st_mtime_ns for file in gone.parent.iterdir() if file != gone}
    gone.unlink()
    assert others
    assert compare(tmp_path / "c", "--json") == 0
    assert capsys.readouterr().out == whole
    assert gone.exists() and all(file.stat().st_mtime_ns == at for file, at in others.items())
    # Ctrl-C keeps the parts that are done.
    kept, stopped = [], tmp_path / "stopped"

    def interrupted(self, part, rows, keep=Results.keep):
        if kept:
            raise KeyboardInterrupt
        keep(self, part, rows)
        kept.append(part)

    with monkeypatch.context() as patch:
        patch.setattr(Results, "keep", interrupted)
        assert compare(stopped, "--json") == 130
    assert len(list((stopped / "parts").iterdir())) == 1
    assert compare(stopped, "--json") == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--seed", "4"), "another seed: 3, not 4"),
        (("--load-sweep", "0.5:0.4:1"), "expected BEGIN:END:STEP"),
        (("--executors", "0"), "--executors 0: expected 1 or more"),
        (("--episodes", "0"), "--episodes 0: expected 1 or more"),
        (("--capacity", "fair", "--load-sweep", "1:1:1"), "leave out --load-sweep"),
        (("--cost-per-executor-hour", "1"), "goes with --capacity"),
        (("--against", "fare"), "fare"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(tmp_path, capsys, flags, said):
    assert compare(tmp_path / "c") == 0
    capsys.readouterr()
    assert compare(tmp_path / "c", *flags) == 2
    err = capsys.readouterr().err
    (line,) = [line for line in err.splitlines() if "warning:" not in line]
    assert said in line


def test_a_directory_of_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine").write_text("precious")
    assert compare(tmp_path) == 2
    assert "holds no comparison" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def test_loads_and_clusters_are_swept(tmp_path, capsys):
    assert compare(tmp_path / "c", "--load-sweep", "0.4:0.8:0.4", "--executors", "4", "6") == 0
    assert "best" in capsys.readouterr().out
    summary = json.loads((tmp_path / "c" / "summary.json").read_text())
    found = {(row["executors"], row["load"]) for row in summary["schedulers"]}
    assert found == {(4, 0.4), (4, 0.8), (6, 0.4), (6, 0.8)}
    assert {pair["comparisons"] for pair in summary["pairs"]} == {4}


def test_capacity_is_the_smallest_cluster_that_does(tmp_path, capsys):
    flags = ("--capacity", "fifo", "--cost-per-executor-hour", "2", "--json")
    assert compare(tmp_path / "c", *flags) == 0
    today, fair = json.loads(capsys.readouterr().out)["capacity"]
    assert today["executors"] == 6 and fair["scheduler"] == "fair"
    assert fair["mean_jct_s"] <= today["mean_jct_s"]
    assert fair["cost"] == pytest.approx(2 * fair["executor_hours"])
    lists = lambda n: JobLists(  # noqa: E731
        load_source("synthetic"), cluster=Cluster(executors=n), jobs=4, interarrival_s=300.0, seed=3
    )
    fewer = lists(fair["executors"] - 1).all_jct_s([Fair()], range(5)).mean()
    assert fewer > today["mean_jct_s"]
    assert enough_executors(lists, Fifo(), range(2), 1e-3, 8) is None


def jobs(name, jct_s, work_s=None):
    jct_s = np.array(jct_s, float)
    zero = np.zeros_like(jct_s)
    work_s = zero + 50.0 if work_s is None else np.array(work_s, float)
    return Jobs(
        name, "heuristic", list(range(len(jct_s))), zero, jct_s, zero, work_s, zero + 1,
        jct_s.sum(axis=1), np.full(jct_s.shape, None, object),
    )  # fmt: skip


def test_a_pair_by_hand():
    work_s = [[50.0, 5000.0]] * 4
    a = jobs("a", [[10, 100], [10, 100], [10, 100], [10, 230]], work_s)
    b = jobs("b", [[100, 100], [100, 100], [100, 100], [100, 100]], work_s)
    (pair,) = pairs([b, a], 2, None)
    assert (pair.a, pair.b, pair.windows, pair.better_in) == ("a", "b", 4, 3)
    assert pair.ratio == pytest.approx((3 * 0.55 + 1.2) / 4)
    assert (pair.worst_window, pair.worst_ratio) == (3, pytest.approx(1.2))
    assert "a's mean JCT is 28.7 %" in pair.sentence and "worse in 1 of 4" in pair.sentence
    assert "jobs of 1,000 to 10,000 executor-seconds (50% of all) take 32 % longer" in pair.sentence
    (alone,) = pairs([jobs("a", [[1]]), jobs("b", [[2]])], 2, None)
    assert alone.low is None and "no proof" in alone.sentence


def test_many_comparisons_need_more_proof():
    rng = np.random.default_rng(5)
    base = 100 + rng.normal(0, 1, (12, 1))
    a = jobs("a", base * (1 + rng.normal(-0.012, 0.02, (12, 1))))
    alone = pairs([a, jobs("b", base)], 2, None)[0]
    among = pairs([a, jobs("b", base)], 2, None, comparisons=1000)[0]
    assert (
        (alone.low, alone.high)
        == (among.low, among.high)
        == interval(a.jct_s.mean(axis=1) / base[:, 0], 0.95)
    )
    assert among.adjusted_low < alone.adjusted_low and among.adjusted_high > alone.adjusted_high
    assert alone.verdict == "lower" and among.verdict == "not told apart"
    assert "do not tell apart" in among.sentence


def test_an_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        low, high = interval(rng.normal(0.8, 0.1, 30), 0.95)
        covered += low <= 0.8 <= high
    assert 0.9 < covered / 300 < 0.98


def test_an_unfinished_job_counts_up_to_the_end_of_its_window():
    left, done = jobs("left", [[1.0, np.nan]]), jobs("done", [[2.0, 40.0]])
    end_s = window_ends_s([left, done])
    found = figures(left, end_s, 2, None)
    assert found.unfinished == 1 and found.mean_jct_s == pytest.approx((1 + 40) / 2)


def test_classes_of_sizes():
    assert size_classes(np.array([0.0, 5, 99.9, 100, 999, 1000, 12345])).tolist() == [
        0, 0, 0, 1, 1, 2, 3,
    ]  # fmt: skip
    assert [class_name(k) for k in (0, 1)] == ["less than 100", "100 to 1,000"]


def test_loads():
    assert loads_of("0.5:1.1:0.1") == [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1]
    for spec in ("1", "0:1:1", "a:b:c", "1:2:0", "nan:1:1", "2:1:1"):
        with pytest.raises(ConfigError):
            loads_of(spec)
    source = load_source("synthetic")
    _, _, between_s = under_load(source, "test", None, 0.7, 10)
    work_s = np.mean([measured_work_s(stages) for stages in source.templates("test")])
    assert work_s / between_s / 10 == pytest.approx(0.7)


def test_a_logs_load_is_scaled_and_its_jobs_keep_their_names(tmp_path):
    stage = Stage(id="s", task_count=3, durations=Pool((2.0, 3.0)))
    jobs = tuple(
        Job(id=f"job{i}", arrival_s=5.0 * i, stages=(stage,), user=f"u{i % 2}") for i in range(12)
    )
    write_workload(tmp_path / "w.jobs.jsonl", Workload(jobs))
    source = load_source(str(tmp_path / "w.jobs.jsonl"))
    scaled, split, _ = under_load(source, "all", None, 0.5, 4)
    assert offered_load(scaled.part(split), 4) == pytest.approx(0.5)
    lists = JobLists(scaled, cluster=Cluster(executors=4), jobs=4, interarrival_s=None, seed=0,
                     split="all")  # fmt: skip
    part = Part("fair", "heuristic", 4, 0.5, (0, 1))
    rows = columns(part, lists, lists.all_outcomes([Fair()], part.windows).of(0), "w")
    assert len({*rows["job_id"].tolist()} & {job.id for job in jobs}) == 8
    results = Results(tmp_path / "out", {})
    results.keep(part, rows)
    by_user = summarise(results.finish([part]), {}).schedulers[0].by_user
    assert {(group.name, group.jobs) for group in by_user} == {("u0", 4), ("u1", 4)}
