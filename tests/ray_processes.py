"""What a Ray leaves behind: processes and files."""

import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

SOON_S = 60.0


class Family:
    """All processes that this one started, and those that these did; dead ones are forgotten.

    Not by name: other tests may have a Ray of their own at the same time.
    """

    def __init__(self):
        self._before = set(psutil.Process().children(recursive=True))
        self._seen = set()

    def look(self):
        """Remember who is there: an orphan would not be found later."""
        self._seen |= set(psutil.Process().children(recursive=True)) - self._before

    def left(self):
        self.look()
        return [p for p in self._seen if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    def is_gone(self):
        with suppress(psutil.NoSuchProcess):
            return bool(self._seen) and not self.left()
        return False


@contextmanager
def short_temporary_directory():
    """Temporary files go to a new place while this lasts, and must be gone at the end.

    Ray's sockets need shorter names than in pytest's own.
    """
    before, tempfile.tempdir = tempfile.tempdir, None
    directory = tempfile.mkdtemp(prefix="ganger-test-")
    tempfile.tempdir = directory
    try:
        yield Path(directory)
        # Torch leaves an empty directory of its compiler's.
        assert [p.name for p in Path(directory).iterdir() if "torch" not in p.name] == []
    finally:
        tempfile.tempdir = before
        shutil.rmtree(directory, ignore_errors=True)


def eventually(condition):
    deadline = time.monotonic() + SOON_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
