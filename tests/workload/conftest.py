import numpy as np
import pytest

# Spark's profiles list fresh tasks among the first ones, too. Level 2 comes first: it counts tasks.
STAGE = {
    "first_wave": {2: [4000, 5000], 100: [9000], 5: [7000, 6000, 7000], 10: [8000]},
    "fresh_durations": {2: [4000], 100: [9000], 5: [7000], 10: [8000]},
    "rest_wave": {2: [1000, 2000, 3000], 100: [], 5: [2500], 10: []},
}


@pytest.fixture(scope="session")
def tpch_stage():
    """The profile of one stage, as the files of TPC-H profiles hold it."""
    return STAGE


@pytest.fixture(scope="session")
def write_query():
    """A function that writes the two files of a query, by default of two stages in a row."""

    def write(root, size="2g", query=1, matrix=((0, 1), (0, 0)), durations=None):
        folder = root / size
        folder.mkdir(parents=True, exist_ok=True)
        profile = {0: STAGE, 1: STAGE} if durations is None else durations
        np.save(folder / f"adj_mat_{query}.npy", np.array(matrix, float))
        np.save(folder / f"task_duration_{query}.npy", np.array(profile, object), allow_pickle=True)
        return folder

    return write
