import numpy as np
import pytest

from ganger.errors import WorkloadError
from ganger.workload import Wave, task_estimate_s
from ganger.workload.readers.tpch import LEVELS, QUERIES, SIZES, read_profiles

WAVES = ("first_wave", "fresh_durations", "rest_wave")


def test_a_stage_follows_the_rules_of_its_profile(tmp_path, write_query):
    write_query(tmp_path)
    (first, second) = read_profiles(tmp_path)["2g", 1]
    assert (first.id, first.parents, second.id, second.parents) == ("0", (), "1", ("0",))
    assert first.task_count == 2 + 3  # by level 2, the first in the file, fresh tasks included
    assert first.durations.interpolation == "inverted"
    assert first.durations.warmup_s == 1.0
    levels = {wave.executors: wave for wave in first.durations.levels}
    assert tuple(levels) == LEVELS
    assert levels[5] == Wave(
        executors=5, fresh_s=(7.0,), first_s=(6.0, 7.0), rest_s=(2.5,)
    )  # one 7000 was fresh, the other one was not
    # All first tasks at 10 were fresh: those of the level below are used.
    assert levels[10] == Wave(executors=10, fresh_s=(8.0,), first_s=(6.0, 7.0), rest_s=())
    # 20 to 80 are not in the file: the largest level is.
    for level in (20, 40, 50, 60, 80, 100):
        assert levels[level] == Wave(executors=level, fresh_s=(9.0,), first_s=(6.0, 7.0))
    # After cleaning: first 5; 6 7; 6 7; 6 7 - fresh 4; 7; 8; 9 - rest 1 2 3; 2.5
    values = [5, 6, 7, 6, 7, 6, 7, 4, 7, 8, 9, 1, 2, 3, 2.5]
    assert task_estimate_s(first) == pytest.approx(sum(values) / len(values), rel=1e-15)


def test_profiles_are_listed_by_size_then_query(tmp_path, write_query):
    for size in ("100g", "5g", "2g"):
        for query in (10, 2):
            write_query(tmp_path, size, query)
    assert list(read_profiles(tmp_path)) == [
        (size, query) for size in ("2g", "5g", "100g") for query in (2, 10)
    ]


def test_a_directory_without_profiles_says_what_is_expected(tmp_path):
    with pytest.raises(WorkloadError, match="holds no TPC-H profiles; expected folders named 2g"):
        read_profiles(tmp_path)
    with pytest.raises(WorkloadError, match="absent: is not a directory"):
        read_profiles(tmp_path / "absent")


@pytest.mark.parametrize("name", ["adj_mat_1.npy", "task_duration_1.npy"])
def test_one_file_of_a_pair_missing_is_named(tmp_path, write_query, name):
    folder = write_query(tmp_path)
    (folder / name).unlink()
    with pytest.raises(WorkloadError, match=f"{name}: cannot be read: No such file"):
        read_profiles(tmp_path)


WRONG_MATRICES = [
    (((0, 2), (0, 0)), "adj_mat_1.npy: expected a square matrix of 0 and 1"),
    (((0, 1),), "adj_mat_1.npy: expected a square matrix"),
    (((0, 1), (1, 0)), "task_duration_1.npy: parents: stages wait for each other"),
]


@pytest.mark.parametrize(("matrix", "message"), WRONG_MATRICES)
def test_a_wrong_matrix_is_refused_by_file(tmp_path, write_query, matrix, message):
    write_query(tmp_path, matrix=matrix)
    with pytest.raises(WorkloadError, match=message) as caught:
        read_profiles(tmp_path)
    assert str(tmp_path / "2g") in str(caught.value)


WRONG_STAGES = [
    ({}, "stage 1: expected a dict 'first_wave'"),
    ([], "stage 1: expected a dict 'first_wave'"),
    ({"rest_wave": 3}, "stage 1: expected a dict 'rest_wave'"),
    ({"rest_wave": {2: []}}, "stage 1: expected first_wave, fresh_durations and rest_wave for"),
    ({"rest_wave": {"2": []}}, "rest_wave: expected lists by executor"),
    ({"rest_wave": {2: 5}}, "rest_wave: expected lists by executor"),
    ({"rest_wave": {2: ["1"], 100: [], 5: [], 10: []}}, r"rest_wave\[2\]: expected finite"),
    ({"rest_wave": {2: [10**400], 100: [], 5: [], 10: []}}, r"rest_wave\[2\]: expected finite"),
    ({"rest_wave": {2: [], 100: [], 5: [-1], 10: []}}, r"levels\[0\].rest_s\[0\] is -0.001"),
    ({name: {2: []} for name in WAVES}, "stage 1: holds no durations"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG_STAGES)
def test_a_wrong_stage_is_refused_by_file(tmp_path, write_query, tpch_stage, changes, message):
    stage = {**tpch_stage, **changes} if changes else changes
    write_query(tmp_path, durations={0: tpch_stage, 1: stage})
    with pytest.raises(WorkloadError, match=message) as caught:
        read_profiles(tmp_path)
    assert str(tmp_path / "2g") in str(caught.value)


def test_a_profile_with_other_stages_than_the_matrix_is_refused(tmp_path, write_query, tpch_stage):
    for durations in ({0: tpch_stage}, [tpch_stage]):
        write_query(tmp_path, durations=durations)
        with pytest.raises(
            WorkloadError, match="expected a dict with the stages 0 to 1 of adj_mat"
        ):
            read_profiles(tmp_path)


def test_all_of_the_published_profiles_load(tpch_dir):
    profiles = read_profiles(tpch_dir)
    assert list(profiles) == [(size, query) for size in SIZES for query in QUERIES]
    stages = [stage for stages in profiles.values() for stage in stages]
    assert len(stages) == 1414
    tasks = [sum(stage.task_count for stage in stages) for stages in profiles.values()]
    assert (min(tasks), max(tasks)) == (13, 3717)
    assert np.mean(tasks) == pytest.approx(1155, abs=1)


def test_published_profiles_agree_with_a_direct_reading(tpch_dir):
    """The rules once more, written differently, on files we trust enough to unpickle."""
    for (size, query), stages in read_profiles(tpch_dir).items():
        folder = tpch_dir / size
        profile = np.load(folder / f"task_duration_{query}.npy", allow_pickle=True).item()
        matrix = np.load(folder / f"adj_mat_{query}.npy")
        for i, stage in enumerate(stages):
            assert stage.parents == tuple(str(j) for j in range(len(stages)) if matrix[j, i])
            first, fresh, rest = (profile[i][name] for name in WAVES)
            counted = next(iter(first))
            assert stage.task_count == len(first[counted]) + len(rest[counted])
            cleaned, below = {}, []
            for level in sorted(first):
                cleaned[level] = list(first[level])
                for value in fresh[level]:
                    cleaned[level].remove(value)
                below = cleaned[level] = cleaned[level] or below
            for wave in stage.durations.levels:
                level = wave.executors if wave.executors in first else max(first)
                for seconds, milliseconds in (
                    (wave.fresh_s, fresh[level]),
                    (wave.first_s, cleaned[level]),
                    (wave.rest_s, rest[level]),
                ):
                    assert sorted(seconds) == [value / 1000 for value in sorted(milliseconds)]
            pooled = np.concatenate([v for d in (cleaned, fresh, rest) for v in d.values()])
            assert stage.estimated_task_s == pytest.approx(pooled.mean() / 1000, rel=1e-12)
