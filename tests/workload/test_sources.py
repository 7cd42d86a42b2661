import io
import json
from types import SimpleNamespace

import pytest

from ganger.errors import WorkloadError
from ganger.workload import (
    FileSource,
    Job,
    Pool,
    Stage,
    SyntheticSource,
    Workload,
    job_list_workload,
    load_source,
    random_workload,
    synthetic_stages,
    template_users,
    template_weights,
    write_workload,
)


def trace(jobs):
    return Workload(
        tuple(
            Job(
                id=str(i),
                arrival_s=float(i),
                stages=(Stage(id="a", task_count=1 + i, durations=Pool((1.0,))),),
            )
            for i in range(jobs)
        )
    )


def lists(source, **settings):
    settings = {"jobs": 30, "interarrival_s": 25.0, "seed": 0} | settings
    workload = random_workload(source, **settings)
    return [(job.arrival_s, job.stages) for job in workload.jobs]


@pytest.fixture
def file_source(tmp_path):
    path = tmp_path / "w.jobs.jsonl"
    write_workload(path, trace(10))
    return load_source(str(path))


def test_synthetic_is_named_with_and_without_a_seed():
    assert load_source("synthetic") == SyntheticSource(0)
    assert load_source("synthetic:seed=3") == SyntheticSource(3)
    assert load_source("synthetic:seed=3").name == "synthetic:seed=3"


@pytest.mark.parametrize(
    "spec", ["synthetic:3", "synthetic:seed=-1", "synthetic:", "synthetic:x=1"]
)
def test_a_malformed_seed_is_refused(spec):
    with pytest.raises(WorkloadError, match="expected synthetic or synthetic:seed=N"):
        load_source(spec)


@pytest.mark.parametrize("spec", ["", "nonsense", "tpch", "tpch:", "jobs:", "x.csv", "swf:", "swf"])
def test_an_unknown_specification_names_the_choices(spec):
    with pytest.raises(
        WorkloadError, match=r"expected synthetic, .*tpch:DIR, PATH, or FORMAT:PATH with jobs, swf"
    ):
        load_source(spec)


def test_native_files_are_recognised_by_content_or_name(tmp_path):
    for name in ("w.jobs.jsonl", "w.jobs.jsonl.zst", "w.json"):
        write_workload(tmp_path / name, trace(3))
        for prefix in ("", "jobs:"):
            source = load_source(f"{prefix}{tmp_path / name}")
            assert isinstance(source, FileSource)
            assert source.workload() == trace(3)
    (tmp_path / "v.jobs.jsonl").write_text("{}\n")
    with pytest.raises(WorkloadError, match="expected a first line"):
        load_source(str(tmp_path / "v.jobs.jsonl"))


SWF_ROW = "{} {} 0 60 4 -1 -1 4 100 -1 1 7 1 -1 -1 -1 -1 -1\n"


def test_a_log_is_recognised_by_content_or_its_format_is_given(tmp_path, monkeypatch):
    text = "".join(SWF_ROW.format(i, i) for i in range(3))
    path = tmp_path / "log.jobs"
    path.write_text(text)
    for spec in (f"{path}", f"swf:{path}", f"{tmp_path}", f"{tmp_path}/*.jobs", f"swf:{tmp_path}"):
        source = load_source(spec)
        assert isinstance(source, FileSource)
        assert source.name == spec
        assert [job.arrival_s for job in source.workload().jobs] == [0.0, 1.0, 2.0]
        assert (source.findings.rows, source.findings.format) == (3, "Standard Workload Format")
    for spec in ("-", "swf:-"):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
        assert len(load_source(spec).workload().jobs) == 3


def test_files_of_a_directory_are_one_workload_and_what_does_not_belong_is_counted(tmp_path):
    for name in ("a.swf", "b.swf"):
        (tmp_path / name).write_text(SWF_ROW.format(1, 0))
    (tmp_path / "README").write_text("hello\n")
    (tmp_path / "empty").write_text("")
    source = load_source(str(tmp_path))
    assert sorted(job.id for job in source.workload().jobs) == ["a:1", "b:1"]
    ((what, _), finding), *_ = source.findings.found.items()
    assert (what, finding.places) == ("dropped", [f"{tmp_path}/README"])
    assert f"{tmp_path}/empty: the file is empty" in source.findings.notes
    with pytest.raises(WorkloadError, match="README: file of no format"):
        load_source(str(tmp_path), strict=True)
    write_workload(tmp_path / "c", trace(1))
    with pytest.raises(WorkloadError, match=r"several formats, swf \(.*a\.swf\), jobs \(.*c\)"):
        load_source(str(tmp_path))


def test_a_file_of_no_known_format_is_refused_with_the_formats(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("hello\n")
    with pytest.raises(WorkloadError, match=r"x\.txt: the format is not recognised; .* jobs, swf"):
        load_source(str(path))
    with pytest.raises(WorkloadError, match=r"x\.txt: none of its 1 rows is a job"):
        load_source(f"swf:{path}")
    with pytest.raises(WorkloadError, match="the directory holds no files"):
        (tmp_path / "none").mkdir()
        load_source(str(tmp_path / "none"))
    with pytest.raises(WorkloadError, match="nothing matches"):
        load_source(f"{tmp_path}/*.swf")
    with pytest.raises(WorkloadError, match="there is no such file"):
        load_source("swf:absent")


def test_strict_refuses_what_would_have_to_be_altered(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text(SWF_ROW.format(1, 0) + "dirt\n" + SWF_ROW.format(2, 0))
    assert len(load_source(str(path)).workload().jobs) == 2
    with pytest.raises(WorkloadError, match=r"log\.swf:2: fewer than 18 columns; dropped without"):
        load_source(str(path), strict=True)


def test_an_option_that_a_reader_does_not_have_is_refused(tmp_path):
    for spec, message in [
        ("swf,unit=sql:x", "format swf has no option 'unit'; it has none"),
        ("swf,unit:x", "'unit' is no option; expected name=value"),
    ]:
        with pytest.raises(WorkloadError, match=message):
            load_source(spec)


def test_several_native_files_may_not_share_an_id(tmp_path):
    write_workload(tmp_path / "a", trace(2))
    write_workload(tmp_path / "b", trace(1))
    with pytest.raises(WorkloadError, match=r"b: job '0' is also in .*a"):
        load_source(str(tmp_path))


def test_synthetic_jobs_for_training_and_tests_differ():
    source = SyntheticSource(5)
    train, test = source.templates("train"), source.templates("test")
    assert len(train) == len(test) == 512
    assert train[3] == synthetic_stages(5, 3)
    assert not set(train) & set(test)
    assert source.templates("train") is train


def test_a_trace_is_split_by_arrival(file_source):
    tasks = {
        split: [stages[0].task_count for stages in file_source.templates(split)]
        for split in ("train", "test")
    }
    assert tasks == {"train": [1, 2, 3, 4, 5, 6, 7, 8], "test": [9, 10]}


def test_a_trace_too_short_to_split_says_so():
    source = FileSource("one", trace(1))
    assert len(source.templates("test")) == 1
    with pytest.raises(WorkloadError, match="one: 1 jobs leave none to train with"):
        source.templates("train")
    with pytest.raises(WorkloadError, match="0 jobs leave none to test with"):
        FileSource("none", trace(0)).templates("test")


def test_distinct_jobs_of_a_trace_are_templates_once(tmp_path):
    stages = trace(1).jobs[0].stages
    jobs = tuple(Job(id=str(i), arrival_s=0.0, stages=stages) for i in range(10))
    assert len(FileSource("f", Workload(jobs)).templates("train")) == 1


def test_a_template_of_two_users_is_two_templates_and_jobs_drawn_keep_their_user():
    stages = trace(1).jobs[0].stages
    users = ("ann", "bob", "ann", None, "bob")
    jobs = tuple(
        Job(id=str(i), arrival_s=0.0, stages=stages, user=user) for i, user in enumerate(users * 2)
    )
    source = FileSource("f", Workload(jobs))
    assert template_users(source, "train") == ("ann", "bob", None)
    assert source.templates("train") == (stages,) * 3
    assert template_weights(source, "train", {"bob": 2.5}) == [1.0, 2.5, 1.0]
    drawn = random_workload(source, jobs=30, interarrival_s=1.0, seed=0, split="train").jobs
    assert {job.user for job in drawn} == {"ann", "bob", None}
    assert set(template_users(SyntheticSource(), "test")) == {None}


def test_a_random_list_repeats_by_seed_index_and_split(file_source):
    assert lists(file_source) == lists(file_source)
    different = [
        lists(file_source, split="test"),
        lists(file_source, split="train"),
        lists(file_source, seed=1),
        lists(file_source, index=1),
    ]
    arrivals = {tuple(arrival_s for arrival_s, _ in jobs) for jobs in different}
    assert len(arrivals) == 4


def test_jobs_of_a_random_list_share_their_templates(file_source):
    templates = {id(stages) for stages in file_source.templates("test")}
    assert {id(stages) for _, stages in lists(file_source)} == templates


@pytest.mark.parametrize(
    "wrong", [{"jobs": 0}, {"interarrival_s": -1.0}, {"interarrival_s": float("nan")}, {"seed": -1}]
)
def test_impossible_lists_are_refused(file_source, wrong):
    with pytest.raises(WorkloadError, match=f"{next(iter(wrong))} is"):
        lists(file_source, **wrong)


@pytest.fixture
def tpch_source(tmp_path, write_query):
    write_query(tmp_path / "tpch", "2g", 1)
    write_query(tmp_path / "tpch", "50g", 22)
    return load_source(f"tpch:{tmp_path / 'tpch'}")


def test_tpch_draws_from_the_same_jobs_in_both_splits(tpch_source):
    assert tpch_source.templates("train") == tpch_source.templates("test")
    assert len(tpch_source.templates("test")) == 2


def test_a_job_list_names_arrival_size_and_query(tmp_path, tpch_source):
    path = tmp_path / "list.json"
    path.write_text('[[0, "50g", 22], [1500.5, "2g", 1], [1500.5, "50g", 22]]')
    jobs = job_list_workload(tpch_source, path).jobs
    assert [(job.id, job.arrival_s) for job in jobs] == [("0", 0.0), ("1", 1.5005), ("2", 1.5005)]
    assert jobs[0].stages is jobs[2].stages is tpch_source.profiles["50g", 22]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "expected a JSON list"),
        ("{}", "expected a JSON list"),
        ("[]", "the list is empty"),
        ("[" * 100_000, "expected a JSON list"),
        ('[[0, "2g", 1], [1, 2]]', r"entry 2: \[1, 2\]; expected \[arrival_ms, size, query\]"),
        ('[[-1, "2g", 1]]', "entry 1: "),
        ('[[0, "2g", 7]]', "entry 1: no job of size '2g' and query 7; no such profile was loaded"),
        ('[[0, "3g", 1]]', "entry 1: .*; sizes are 2g, 5g"),
    ],
)
def test_a_wrong_job_list_is_refused_by_entry(tmp_path, tpch_source, content, message):
    path = tmp_path / "list.json"
    path.write_text(content)
    with pytest.raises(WorkloadError, match=message) as caught:
        job_list_workload(tpch_source, path)
    assert str(path) in str(caught.value)


def test_a_job_list_needs_tpch_and_a_file(tmp_path, tpch_source):
    with pytest.raises(WorkloadError, match="synthetic: a job list names TPC-H queries"):
        job_list_workload(SyntheticSource(), tmp_path / "list.json")
    with pytest.raises(WorkloadError, match="cannot be read: No such file"):
        job_list_workload(tpch_source, tmp_path / "list.json")


def test_published_job_lists_are_read(tpch_dir, reference_dir):
    source = load_source(f"tpch:{tpch_dir}")
    for path in sorted((reference_dir / "workloads").glob("*.json")):
        rows = json.loads(path.read_text())
        jobs = job_list_workload(source, path).jobs
        assert [job.arrival_s for job in jobs] == [row[0] / 1000.0 for row in rows]
        assert all(
            job.stages is source.profiles[size, query]
            for job, (_, size, query) in zip(jobs, rows, strict=True)
        )
