"""DAX, the XML workflows of Pegasus, versions 2.1 to 3.6.

`<job id runtime>` elements are tasks, `<child ref><parent ref/></child>` elements say which of them
wait for which. A file becomes one job that arrives at 0, each task a stage of its own. Files that
tasks use are left out: where they imply more dependencies than are stated, the stated ones count.

`cores`, which a few files add to a job, can exceed any one machine's: such a job becomes a gang
that runs on so many executors at once.

Source: Pegasus' schemas dax-2.1.xsd to dax-3.6.xsd; with or without their namespace.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from ganger.errors import WorkloadError
from ganger.workload.model import MAX_TASKS, Job, PerTask, Pool, Stage, check_stages
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.graph import job_ids, known_parents
from ganger.workload.readers.opening import open_bytes

NAME = "dax"

_READ_SIZE = 1 << 16
_MAX_DEPTH = 100
# Of one tag or comment: some versions of expat begin anew with each chunk of it.
_MAX_TOKEN = 1 << 20
_SUBWORKFLOWS = ("dax", "dag")
_EXPECTED = "expected a DAX workflow"


class _Task(NamedTuple):
    run_s: float | None
    cores: int
    where: str


@dataclass
class _Graph:
    """What the elements of one file have said so far."""

    tasks: dict[str, _Task] = field(default_factory=dict)
    parents: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Child -> its parents with their places."""
    jobs: int = 0
    children: int = 0
    said: dict[str, str] = field(default_factory=dict)
    """Attributes of the root."""


def recognise(head: bytes, path: Path) -> bool:
    """An XML file whose root is an adag, whatever its namespace."""
    for encoding in ("utf-8", "utf-16"):
        text = head.decode(encoding, "replace").lstrip("\ufeff \t\r\n")
        if text.startswith("<"):
            before, found, after = text.partition("adag")
            return bool(found) and before[-1] in "<:" and after[:1] in (" ", "\t", "\r", "\n", ">")
    return False


def read(paths: Sequence[Path], findings: Findings) -> Iterator[Job]:
    """One job per file.

    Raises:
        WorkloadError: with the path and line of what is wrong. A document that defines entities is
            refused, as a few bytes of them may stand for gigabytes or for other files.
    """
    findings.format = "Pegasus DAX"
    for path, name in zip(paths, job_ids(paths), strict=True):
        findings.files += 1
        yield Job(id=name, arrival_s=0.0, stages=_stages(_parse(path, findings), path, findings))


def _parse(path: Path, findings: Findings) -> _Graph:
    graph = _Graph()
    parser = expat.ParserCreate()
    open_elements: list[str] = []
    child: list[str | None] = [None]  # whose parents are being listed

    def where() -> str:
        return f"{path}:{parser.CurrentLineNumber}"

    def start(name: str, attributes: dict[str, str]) -> None:
        name = _local(name)
        if not open_elements and name != "adag":
            raise WorkloadError(f"{where()}: the root element is {name[:40]!r}; {_EXPECTED}")
        if len(open_elements) >= _MAX_DEPTH:
            raise WorkloadError(f"{where()}: nested too deeply; {_EXPECTED}")
        open_elements.append(name)
        match name:
            case "adag":
                if len(open_elements) == 1:
                    graph.said = attributes
            case "job":
                _add_job(graph, attributes, where(), findings)
            case "child":
                graph.children += 1
                child[0] = _required(attributes, "ref", "child", where())
            case "parent":
                if child[0] is None:
                    raise WorkloadError(f"{where()}: a parent outside of a child; {_EXPECTED}")
                parent = _required(attributes, "ref", "parent", where())
                graph.parents.setdefault(child[0], []).append((parent, where()))
            case _ if name in _SUBWORKFLOWS:
                findings.add("dropped", f"<{name}>, a workflow within the workflow", where())

    def end(name: str) -> None:
        open_elements.pop()
        if _local(name) == "child":
            child[0] = None

    def refuse(*declared: object) -> int:
        raise WorkloadError(f"{where()}: defines an entity; expected XML without any")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    try:
        with open_bytes(path) as file:
            fed = 0
            while chunk := file.read(_READ_SIZE):
                fed += len(chunk)
                parser.Parse(chunk, False)
                if fed - parser.CurrentByteIndex > _MAX_TOKEN:
                    raise WorkloadError(f"{where()}: a tag is too long; {_EXPECTED}")
            parser.Parse(b"", True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise WorkloadError(f"{path}:{error.lineno}: {reason}; {_EXPECTED}") from None
    except (LookupError, ValueError) as error:  # of the encoding that the document names
        raise WorkloadError(f"{path}: {error}; {_EXPECTED}") from None
    return graph


def _local(name: str) -> str:
    """The name without the prefix of its namespace."""
    return name.rpartition(":")[2]


def _required(attributes: dict[str, str], name: str, element: str, where: str) -> str:
    if name not in attributes:
        raise WorkloadError(f"{where}: a {element} without {name}; {_EXPECTED}")
    return attributes[name]


def _add_job(graph: _Graph, attributes: dict[str, str], where: str, findings: Findings) -> None:
    name = _required(attributes, "id", "job", where)
    graph.jobs += 1
    findings.rows += 1
    if name in graph.tasks:
        findings.add("dropped", "job with the id of an earlier job", where)
        return
    run_s = _number(attributes["runtime"]) if "runtime" in attributes else None
    if "runtime" in attributes and run_s is None:
        findings.add("dropped", "run time that is no number", where)
    cores = 1
    if "cores" in attributes:
        asked = _number(attributes["cores"])
        if asked is None or not 1 <= asked <= MAX_TASKS or asked != int(asked):
            findings.add("dropped", "cores that are no whole number from 1: 1", where)
        else:
            cores = int(asked)
    graph.tasks[name] = _Task(run_s, cores, where)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _stages(graph: _Graph, path: Path, findings: Findings) -> tuple[Stage, ...]:
    tasks = graph.tasks
    if not tasks:
        raise WorkloadError(f"{path}: has no jobs; expected at least one")
    if all(task.run_s is None for task in tasks.values()):
        raise WorkloadError(f"{path}: no job has a runtime; expected at least one that has")
    findings.version = graph.said.get("version", findings.version)
    _compare(graph, path, findings)
    for child, listed in graph.parents.items():
        if child not in tasks:
            where = listed[0][1]
            findings.add("dropped", "dependency of a job that does not exist", where, len(listed))
    stages = tuple(
        _stage(name, task, known_parents(graph.parents.get(name, ()), tasks, findings), findings)
        for name, task in tasks.items()
    )
    check_stages(stages, f"{path}")
    return stages


def _stage(name: str, task: _Task, parents: tuple[str, ...], findings: Findings) -> Stage:
    run_s = task.run_s
    if run_s is None:
        findings.add("guessed", "run time is missing: 0 s", task.where)
        run_s = 0.0
    elif run_s < 0.0:
        findings.add("guessed", "run time is below 0: 0 s", task.where)
        run_s = 0.0
    gang = task.cores > 1
    return Stage(
        id=name,
        parents=parents,
        task_count=task.cores,
        durations=Pool((run_s,)) if gang else PerTask((run_s,)),
        gang=gang,
    )


def _compare(graph: _Graph, path: Path, findings: Findings) -> None:
    """Note where the root's counts are others than those of the elements."""
    for attribute, count in (("jobCount", graph.jobs), ("childCount", graph.children)):
        said = graph.said.get(attribute)
        if said is not None and said != str(count):
            findings.add("noted", f"{attribute} that disagrees with the elements", f"{path}")
