"""The agreement with two other simulators, which benchmarks/peer_agreement.py prints."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "peer_agreement.py"


@pytest.fixture(scope="module")
def lines(shared_dir, tpch_dir, reference_dir):
    spec = importlib.util.spec_from_file_location("peer_agreement", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {(line.scheduler, line.executors): line for line in module.agreement(shared_dir)}


# With fifo at 50 executors many executors arrive when their stage has launched its last task. At
# another stage of the same job, not ready yet, decima-sim makes them pay the moving delay again;
# here, as in spark-sched-sim, they wait in the job's pool. Only decima-sim measured this case, and
# with its rule the ratio is 0.986.
_PAYS_TWICE = pytest.mark.xfail(reason="decima-sim: a move within the job is paid", strict=True)


@pytest.mark.parametrize(
    ("scheduler", "executors"),
    [
        ("fifo", 10),
        pytest.param("fifo", 50, marks=_PAYS_TWICE),
        ("fair", 10),
        ("fair", 50),
        ("random", 10),
        ("random", 50),
    ],
)
def test_mean_completion_times_agree_with_the_peers(lines, scheduler, executors):
    line = lines[scheduler, executors]
    assert line.agrees, f"ratio {line.ratio:.4f}, band {line.band:.4f}"
