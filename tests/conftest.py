"""Where tests find the data that is too big, or not ours, to keep in the repository."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A shared or busy machine is not a failure; tests that are about time measure it themselves.
settings.register_profile("ganger", deadline=None)
settings.load_profile("ganger")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """$GANGER_SHARED, else `shared` beside the repository."""
    configured = os.environ.get("GANGER_SHARED")
    default = Path(__file__).resolve().parents[2] / "shared"
    directory = Path(configured) if configured else default
    if not directory.is_dir():
        pytest.skip(f"{directory} is absent; GANGER_SHARED names another place")
    return directory


@pytest.fixture(scope="session")
def tpch_dir(shared_dir: Path) -> Path:
    """Decima's TPC-H profiles."""
    return _folder(shared_dir / "data" / "tpch")


@pytest.fixture(scope="session")
def reference_dir(shared_dir: Path) -> Path:
    """Job lists, and what other simulators measured on them."""
    return _folder(shared_dir / "reference")


def _folder(directory: Path) -> Path:
    if not directory.is_dir():
        pytest.skip(f"{directory} is absent")
    return directory
