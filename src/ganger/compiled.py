"""How Ganger compiles its hot loops: one decorator, one cache.

Functions marked `compiled` are plain Python; Numba turns them into machine code the first time they
are called and keeps the result on disk. `NUMBA_DISABLE_JIT=1` runs the very same source
uncompiled, which is the oracle of the tests.

Numba keys a cached function by its own file only, not by the files of the functions it calls. So
the cache directory's name carries a digest of the source files that compiled functions call across
files, which are the layers from `policy` down: an edited or upgraded Ganger never meets stale
machine code. A compiled function above them calls only its own file and those layers.
"""

import atexit
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba import njit

JIT = not bool(numba.config.DISABLE_JIT)


def _source_digest() -> str:
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    package = Path(__file__).parent
    shared = ["compiled.py", "streams.py", "structs.py"]
    for layer in ("workload", "simulator", "schedulers", "policy"):
        # Readers of files compile nothing.
        paths = [path for path in (package / layer).rglob("*.py") if "readers" not in path.parts]
        shared += [str(path.relative_to(package)) for path in paths]
    for name in sorted(shared):
        digest.update(name.encode())
        digest.update((package / name).read_bytes())
    return digest.hexdigest()[:16]


def cache_home() -> Path:
    """Where compiled code is kept: $GANGER_CACHE, else the user's cache directory."""
    if configured := os.environ.get("GANGER_CACHE"):
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ganger"


def _usable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


def _choose_cache_directory() -> str:
    try:
        directory = cache_home() / f"compiled-{_source_digest()}"
    except (OSError, RuntimeError):  # no home directory at all
        directory = Path(os.devnull)
    if _usable(directory):
        return str(directory)
    # Read-only or absent: compile for this process only, and leave nothing behind.
    temporary = tempfile.mkdtemp(prefix="ganger-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return temporary


numba.config.CACHE_DIR = _choose_cache_directory() if JIT else ""

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

    def compiled(function: F) -> F: ...
    def compiled_fast(function: F) -> F: ...

else:
    compiled = njit(nogil=True, error_model="numpy", cache=True)
    # fastmath reorders float sums: for the network only, never for the simulated clock.
    compiled_fast = njit(nogil=True, error_model="numpy", cache=True, fastmath=True)


def records(shape: int | tuple[int, ...], dtype: Any) -> Any:
    """Zeroed record array whose fields read as attributes, compiled or not."""
    array = np.zeros(shape, dtype)
    return array if JIT else array.view(np.recarray)
