"""What a training run leaves on disk, whatever becomes of it."""

import json
import logging
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ganger.config import Config
from ganger.errors import CheckpointError, ConfigError, TrainingError
from ganger.training.run_directory import RunDirectory


class Settings(Config):
    """Settings of a run."""

    learning_rate: float = 0.1
    workload: str = "synthetic"


@pytest.fixture(autouse=True)
def _no_tensorboard(monkeypatch):
    """Importing it takes seconds; the tests that are about it bring it back."""
    monkeypatch.setattr(RunDirectory, "_open_events", lambda self: None)


@pytest.fixture
def run(tmp_path):
    with RunDirectory.create(tmp_path / "run", config=Settings(), seed=3) as run:
        yield run


def tensors(value=0.0):
    return {
        "policy": np.full(10, value, np.float32),
        "matrix": np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)),
        "count": np.array(7, np.int64),
        "mask": np.array([True, False]),
    }


def save(run, *steps, best=()):
    for step in steps:
        run.save_checkpoint(step, tensors(step), {"step": step}, best=step in best)


def flip_a_bit(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)


def tensors_file(run, step):
    (found,) = (run.path / "checkpoints" / f"step-{step:09d}").glob("*.safetensors")
    return found


# --- creating and opening


def test_a_new_run_has_its_settings_and_where_it_comes_from(tmp_path):
    settings = Settings(learning_rate=0.1 + 0.2, workload="tpch:DIR")
    RunDirectory.create(tmp_path / "deep" / "run", config=settings, seed=11).close()

    run = RunDirectory.open(tmp_path / "deep" / "run")

    assert run.config(Settings) == settings
    about = run.provenance
    assert about["seed"] == 11
    assert about["command"] == sys.argv
    assert about["packages"]["numpy"] == np.__version__
    assert about["cpus"] >= 1
    assert about["started_utc"].endswith("+00:00")
    assert {"ganger", "python", "platform", "processor"} <= about.keys()
    assert run.metrics() == []
    assert run.stop_reason is None


def test_an_empty_directory_becomes_a_run_and_one_that_holds_something_does_not(tmp_path):
    RunDirectory.create(tmp_path, config=Settings(), seed=0)
    with pytest.raises(ConfigError, match="holds a run already; resume it"):
        RunDirectory.create(tmp_path, config=Settings(), seed=0)

    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").touch()
    (home / ".unfinished-thesis").touch()
    with pytest.raises(ConfigError, match=r"holds thesis\.tex and is not a run"):
        RunDirectory.create(home, config=Settings(), seed=0)
    assert sorted(os.listdir(home)) == [".unfinished-thesis", "thesis.tex"]


def test_a_run_killed_before_it_began_does_not_block_its_directory(tmp_path):
    (tmp_path / ".unfinished-1234").write_text("{")
    (tmp_path / "provenance.json").write_text("{}")

    run = RunDirectory.create(tmp_path, config=Settings(), seed=5)

    assert run.provenance["seed"] == 5
    assert sorted(os.listdir(tmp_path)) == ["config.json", "provenance.json"]


def test_a_directory_that_cannot_be_made_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be a run directory: Not a directory"):
        RunDirectory.create(tmp_path / "file" / "run", config=Settings(), seed=0)


def test_a_setting_that_json_cannot_hold_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match="not a finite number"):
        RunDirectory.create(tmp_path, config=Settings(learning_rate=float("inf")), seed=0)
    assert not os.listdir(tmp_path)


def test_what_is_not_a_run_cannot_be_opened(tmp_path):
    with pytest.raises(CheckpointError, match="there is no such run directory"):
        RunDirectory.open(tmp_path / "absent")
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        RunDirectory.open(tmp_path)


def test_settings_of_another_kind_are_refused_with_the_file_named(run):
    class Others(Config):
        learning_rate: float = 0.1

    with pytest.raises(CheckpointError, match=r"config\.json: .*unknown field `workload`"):
        run.config(Others)


# --- metrics


def test_records_come_back_in_order(run):
    run.record(1, {"loss": 0.5, "note": "warm-up"})
    run.record(1, {"validation": np.float32(0.25), "count": np.int64(3)})
    run.record(2, {"loss": 0.25, "nested": {"lags": [1, 2]}})

    assert run.metrics() == [
        {"step": 1, "loss": 0.5, "note": "warm-up"},
        {"step": 1, "validation": 0.25, "count": 3},
        {"step": 2, "loss": 0.25, "nested": {"lags": [1, 2]}},
    ]


def test_numbers_that_are_not_finite_are_null(run):
    run.record(1, {"a": float("nan"), "b": np.float32("inf"), "c": [-float("inf"), 1.0]})

    line = (run.path / "metrics.jsonl").read_text()
    assert json.loads(line) == {"step": 1, "a": None, "b": None, "c": [None, 1.0]}


def test_every_record_is_on_disk_at_once(run):
    run.record(1, {"loss": 1.0})

    assert RunDirectory.open(run.path).metrics() == [{"step": 1, "loss": 1.0}]


def test_a_cut_last_line_is_skipped_by_readers_and_removed_by_the_resumed_run(run):
    save(run, 1)
    for step in (1, 2, 3):
        run.record(step, {"loss": 1.0 / step})
    run.close()
    file = run.path / "metrics.jsonl"
    whole = file.read_bytes()
    last_line = whole.rindex(b"\n", 0, -1) + 1

    for cut in range(last_line, len(whole)):
        file.write_bytes(whole[:cut])
        assert [r["step"] for r in RunDirectory.open(run.path).metrics()] == [1, 2]

    resumed, _ = RunDirectory.resume(run.path)
    with resumed:
        resumed.record(2, {"loss": 9.0})
    assert [json.loads(line) for line in file.read_bytes().splitlines()][2:] == [
        {"resumed_after_step": 1},
        {"step": 2, "loss": 9.0},
    ]


def test_a_damaged_line_is_skipped_with_a_warning_that_names_it(run, caplog):
    run.record(1, {})
    run.record(2, {})
    flip_a_bit(run.path / "metrics.jsonl", 0)

    assert run.metrics() == [{"step": 2}]
    assert "metrics.jsonl:1: is not a JSON object" in caplog.text


def test_a_full_disk_ends_the_run_in_one_line_and_the_records_before_stay(run):
    run.record(1, {"loss": 1.0})
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    room = (run.path / "metrics.jsonl").stat().st_size + 10
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, unlimited[1]))
    try:
        with pytest.raises(TrainingError, match=r"metrics\.jsonl: cannot be written: "):
            run.record(2, {"loss": 0.5})
        with pytest.raises(TrainingError, match="step-000000002: cannot be written: "):
            run.save_checkpoint(2, {"a": np.zeros(1000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)

    assert run.metrics() == [{"step": 1, "loss": 1.0}]
    assert run.checkpoint_steps() == []


# --- TensorBoard


@pytest.fixture
def events(monkeypatch):
    """A writer that remembers what it is told instead of the real one."""
    told = []

    class Writer:
        def add_scalar(self, name, value, step):
            told.append((name, value, step))

        def close(self):
            told.append("closed")

    def open_events(run):
        run._events_from = None
        run._events = Writer()

    monkeypatch.setattr(RunDirectory, "_open_events", open_events)
    return told


def test_tensorboard_gets_the_numbers(tmp_path, events):
    with RunDirectory.create(tmp_path, config=Settings(), seed=0) as run:
        run.record(1, {"loss": np.float32(0.5), "count": 2, "note": "x", "lags": [1]})

    assert events == [("loss", 0.5, 1), ("count", 2.0, 1), "closed"]


def test_without_tensorboard_one_line_says_so_and_the_run_goes_on(tmp_path, caplog, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with RunDirectory.create(tmp_path, config=Settings(), seed=0) as run:
        run.record(1, {"loss": 1.0})
        run.record(2, {"loss": 0.5})

    assert len(run.metrics()) == 2
    (notice,) = caplog.messages
    assert notice == "No TensorBoard events: pip install 'ganger[train]' brings tensorboard"


def test_tensorboards_events_can_be_read_back(tmp_path, monkeypatch):
    monkeypatch.undo()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with RunDirectory.create(tmp_path, config=Settings(), seed=0) as run:
        save(run, 2)
        for step in (1, 2, 3):
            run.record(step, {"loss": step / 2, "bad": float("nan")})
    resumed, _ = RunDirectory.resume(tmp_path)
    with resumed:
        resumed.record(3, {"loss": 7.0})

    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(1, 0.5), (2, 1.0), (3, 7.0)]


# --- checkpoints


def test_a_checkpoint_comes_back_exactly_and_can_be_written_to(run):
    metadata = {"optimiser": {"step": 3}, "random": 2**100, "ratio": 0.1 + 0.2, "none": None}
    path = run.save_checkpoint(12, tensors(1.5), metadata)

    checkpoint = RunDirectory.open(run.path).latest_checkpoint()

    assert path.name == "step-000000012"
    assert checkpoint.step == 12
    assert checkpoint.path == path
    assert checkpoint.metadata == metadata
    assert checkpoint.tensors.keys() == tensors().keys()
    for name, array in tensors(1.5).items():
        assert checkpoint.tensors[name].dtype == array.dtype
        assert checkpoint.tensors[name].shape == array.shape
        assert (checkpoint.tensors[name] == array).all()
        checkpoint.tensors[name][...] = 0


def test_metadata_is_compared_as_it_is_read(run):
    run.save_checkpoint(1, {}, {"by_actor": {10: 1, 9: (2, 3)}})

    assert run.latest_checkpoint().metadata == {"by_actor": {"10": 1, "9": [2, 3]}}


def test_what_a_checkpoint_cannot_hold_is_a_type_error_and_leaves_nothing(run):
    with pytest.raises(TypeError, match="tensor names is object"):
        run.save_checkpoint(1, {"names": np.array(["a"], object)}, {})
    with pytest.raises(TypeError, match="tensor z is complex64"):
        run.save_checkpoint(1, {"z": np.zeros(1, np.complex64)}, {})
    with pytest.raises(TypeError, match="metadata holds what JSON cannot"):
        run.save_checkpoint(1, {}, {"best": float("inf")})
    with pytest.raises(TypeError, match="not JSON serializable"):
        run.save_checkpoint(1, {}, {"run": run})
    assert run.checkpoint_steps() == []


def test_the_last_checkpoints_and_those_marked_best_are_kept(run):
    save(run, *range(1, 21), best=(3, 8, 17))

    assert run.checkpoint_steps() == [3, 8, 16, 17, 18, 19, 20]
    assert run.latest_checkpoint().step == 20
    assert run.best_checkpoint().step == 17


def test_the_best_ones_kept_are_bounded_too(tmp_path):
    with RunDirectory.create(tmp_path, config=Settings(), seed=0, keep=2) as run:
        save(run, *range(1, 21), best=range(1, 16))

    assert run.checkpoint_steps() == [14, 15, 19, 20]


def test_a_checkpoint_may_be_marked_best_later_and_again(run):
    save(run, 1, 2, 3)
    run.mark_best(1)
    run.mark_best(2)
    run.mark_best(1)
    save(run, *range(4, 12))

    assert run.best_checkpoint().step == 1
    assert run.checkpoint_steps() == [1, 2, 7, 8, 9, 10, 11]
    with pytest.raises(CheckpointError, match="no checkpoint of step 5 to mark"):
        run.mark_best(5)


def test_where_none_is_marked_the_best_is_the_newest(run):
    save(run, 1, 2)

    assert run.best_checkpoint().step == 2


def test_a_checkpoint_of_the_same_step_is_replaced(run):
    run.save_checkpoint(4, tensors(1), {"try": 1})
    run.save_checkpoint(4, tensors(2), {"try": 2})

    checkpoint = run.latest_checkpoint()
    assert checkpoint.metadata == {"try": 2}
    assert checkpoint.tensors["policy"][0] == 2
    assert len(os.listdir(checkpoint.path)) == 2


@pytest.mark.parametrize("name", ["checkpoint.json", "tensors"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "removed"])
def test_a_damaged_newest_checkpoint_means_the_one_before_and_a_warning(run, caplog, name, damage):
    save(run, 1, 2, 3)
    file = tensors_file(run, 3)
    file = file if name == "tensors" else file.with_name(name)
    if damage == "cut":
        os.truncate(file, file.stat().st_size // 2)
    elif damage == "flipped":
        flip_a_bit(file, file.stat().st_size // 2)
    else:
        file.unlink()

    checkpoint = RunDirectory.open(run.path).latest_checkpoint()

    assert checkpoint.step == 2
    if (name, damage) == ("checkpoint.json", "removed"):
        assert not caplog.messages  # as after a kill while it was written: it never existed
    else:
        (warning,) = caplog.messages
        assert "step-000000003" in warning
        assert warning.endswith("step-000000002 is used instead")


def test_a_damaged_best_checkpoint_means_the_best_before(run, caplog):
    save(run, 1, 2, 3, 4, best=(1, 3))
    flip_a_bit(tensors_file(run, 3), 100)

    assert run.best_checkpoint().step == 1
    assert "step-000000003" in caplog.text


def test_a_damaged_list_of_best_ones_is_a_warning(run, caplog):
    save(run, 1, 2, best=(1,))
    (run.path / "checkpoints" / "best.json").write_text("[")

    assert run.best_checkpoint().step == 2
    assert "best.json" in caplog.text


def test_no_intact_checkpoint_is_an_error_and_never_a_fresh_start(run):
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        run.latest_checkpoint()
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        RunDirectory.resume(run.path)
    save(run, 1, 2)
    for step in (1, 2):
        flip_a_bit(tensors_file(run, step), 100)
    with pytest.raises(CheckpointError, match=r"no checkpoint is intact; .*step-000000001"):
        run.latest_checkpoint()


# --- the end, and going on after it


def test_the_reason_of_the_end_is_recorded(run):
    run.stop("20 minutes are over", step=70)

    assert RunDirectory.open(run.path).stop_reason == "20 minutes are over"
    assert json.loads((run.path / "stop_reason.json").read_text())["step"] == 70


def test_a_resumed_run_goes_on_from_its_checkpoint_and_its_metrics_do_too(run):
    save(run, 2)
    for step in (1, 2, 3):
        run.record(step, {"attempt": 1})
    run.stop("interrupted", step=3)

    resumed, checkpoint = RunDirectory.resume(run.path)
    with resumed:
        assert checkpoint.step == 2
        assert resumed.stop_reason is None
        for step in (3, 4):
            resumed.record(step, {"attempt": 2})

    steps = [(record["step"], record["attempt"]) for record in resumed.metrics()]
    assert steps == [(1, 1), (2, 1), (3, 2), (4, 2)]


def test_a_resumed_run_sets_damaged_checkpoints_aside_and_removes_what_was_unfinished(run):
    save(run, 1, *range(10, 15))
    for step in range(11, 15):
        flip_a_bit(tensors_file(run, step), 100)
    (run.path / "checkpoints" / ".unfinished-1").touch()
    (run.path / "checkpoints" / "step-000000010" / ".unfinished-2").touch()

    resumed, checkpoint = RunDirectory.resume(run.path)
    with resumed:
        save(resumed, 12)

    assert checkpoint.step == 10
    assert resumed.checkpoint_steps() == [10, 12]  # 1 had to go before, for 14
    assert resumed.latest_checkpoint().step == 12
    left = sorted(p.name for p in (run.path / "checkpoints").iterdir())
    assert left == [f"damaged-step-0000000{step}" for step in range(11, 15)] + [
        "step-000000010",
        "step-000000012",
    ]
    assert not list(run.path.rglob(".unfinished-*"))


def test_a_run_killed_at_any_moment_can_be_read_and_resumed(tmp_path, caplog):
    """Kill a process that saves and records without pause, several times, at no chosen moment."""
    caplog.set_level(logging.WARNING)
    script = tmp_path / "write.py"
    script.write_text(
        "import sys\n"
        "import numpy as np\n"
        "from ganger.config import Config\n"
        "from ganger.training.run_directory import RunDirectory\n"
        "RunDirectory._open_events = lambda self: None\n"
        "if sys.argv[2] == 'new':\n"
        "    run, step = RunDirectory.create(sys.argv[1], config=Config(), seed=0), 0\n"
        "else:\n"
        "    run, checkpoint = RunDirectory.resume(sys.argv[1])\n"
        "    step = checkpoint.step\n"
        "while True:\n"
        "    step += 1\n"
        "    run.record(step, {'text': 'x' * 500})\n"
        "    run.save_checkpoint(step, {'a': np.full(3000, step)}, {'step': step}, best=True)\n"
        "    run.save_checkpoint(step, {'a': np.full(3000, step)}, {'step': step, 'final': 1})\n"
        "    if step % 5 == 0:\n"
        "        print(step, flush=True)\n"
    )
    path = tmp_path / "run"
    reached = 0
    for attempt in range(4):
        how = "new" if attempt == 0 else "resume"
        command = [sys.executable, str(script), str(path), how]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(3 + attempt):
            assert process.stdout.readline(), "it ended by itself"
        process.send_signal(signal.SIGKILL)
        process.communicate()

        run = RunDirectory.open(path)
        checkpoint = run.latest_checkpoint()
        assert checkpoint.step > reached
        assert (checkpoint.tensors["a"] == checkpoint.step).all()
        assert run.best_checkpoint().step >= checkpoint.step - 1
        recorded = [record["step"] for record in run.metrics()]
        assert recorded == list(range(1, len(recorded) + 1))
        assert len(recorded) >= checkpoint.step
        reached = checkpoint.step
    assert not caplog.messages
