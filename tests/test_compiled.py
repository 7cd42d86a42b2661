"""The cache of compiled code, and that no place to keep it is no reason to fail."""

import os
import subprocess
import sys

import pytest

import ganger.compiled
from ganger.compiled import cache_home

pytestmark = pytest.mark.uncompiled

PROBE = """
import numba
from ganger.streams import mix
import numpy as np
assert int(mix(np.uint64(1))) == 0x5692161D100B05E5
print(numba.config.CACHE_DIR)
"""


def probe(**environment):
    """The cache directory that a new process chose; it compiles one small function there."""
    kept = {k: v for k, v in os.environ.items() if k not in ("GANGER_CACHE", "NUMBA_DISABLE_JIT")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGER_CACHE", str(tmp_path / "mine"))
    assert cache_home() == tmp_path / "mine"
    monkeypatch.delenv("GANGER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_home() == tmp_path / "xdg" / "ganger"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_home() == tmp_path / ".cache" / "ganger"


def test_compiled_code_is_kept_for_the_next_process(tmp_path):
    chosen = probe(GANGER_CACHE=str(tmp_path))
    assert chosen.startswith(str(tmp_path))
    assert list(tmp_path.rglob("*.nbi"))


def test_a_cache_that_cannot_be_written_is_replaced_for_the_process_and_removed(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    chosen = probe(GANGER_CACHE=str(blocked / "cache"))
    assert not chosen.startswith(str(tmp_path))
    assert not os.path.exists(chosen)


def test_a_change_in_any_file_that_compiled_code_calls_across_changes_the_cache(
    tmp_path, monkeypatch
):
    package = tmp_path / "ganger"
    files = ["compiled.py", "streams.py", "structs.py"]
    files += [f"{layer}/callee.py" for layer in ("workload", "simulator", "schedulers", "policy")]
    for name in files:
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("a = 1")
    monkeypatch.setattr(ganger.compiled, "__file__", str(package / "compiled.py"))
    digests = {ganger.compiled._source_digest()}
    for name in files:
        (package / name).write_text("a = 2")
        digests.add(ganger.compiled._source_digest())
    assert len(digests) == 1 + len(files)
