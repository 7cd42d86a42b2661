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


@pytest.mark.parametrize(
    ("scheduler", "executors"),
    [
        ("fifo", 10),
        ("fifo", 50),
        ("fair", 10),
        ("fair", 50),
        ("random", 10),
        ("random", 50),
    ],
)
def test_mean_completion_times_agree_with_the_peers(lines, scheduler, executors):
    line = lines[scheduler, executors]
    assert line.agrees, f"ratio {line.ratio:.4f}, band {line.band:.4f}"
