"""What the readers of task graphs share: a file holds one graph, which becomes one job.

Such a file says nothing of arrivals, so every job arrives at 0, and each task becomes a stage of
its own.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ganger.workload.readers.findings import Findings

_COMPRESSED = (".gz", ".zst", ".zstd")


def job_ids(paths: Sequence[Path]) -> list[str]:
    """An id for each file's job: its name, with as many folders as tell the files apart.

    A file that is named twice is told apart by a number.
    """
    names = [_without_suffix(path) for path in paths]
    deepest = max((len(name.parts) for name in names), default=0)
    ids: list[str] = []
    for depth in range(1, deepest + 1):
        ids = ["/".join(name.parts[-depth:]) for name in names]
        if len(set(ids)) == len(set(names)):
            break
    seen: Counter[str] = Counter()
    for i, name in enumerate(ids):
        seen[name] += 1
        if seen[name] > 1:
            ids[i] = f"{name}#{seen[name]}"
    return ids


def _without_suffix(path: Path) -> Path:
    if path.suffix in _COMPRESSED:
        path = path.with_suffix("")
    return path.with_suffix("") if path.suffix else path


def known_parents(
    parents: Iterable[tuple[str, str]], known: Mapping[str, object], findings: Findings
) -> tuple[str, ...]:
    """The stages in `parents`, each once and in order; what is left out is counted.

    Args:
        parents: a stage's parents, each with its place in the file.
        known: has the stages of the graph as its keys.
    """
    kept: dict[str, None] = {}
    for parent, where in parents:
        if parent not in known:
            findings.add("dropped", "dependency on a task that does not exist", where)
        elif parent in kept:
            findings.add("dropped", "dependency that is listed twice", where)
        else:
            kept[parent] = None
    return tuple(kept)
