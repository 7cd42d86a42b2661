"""Readers of the formats people have, one file each.

A reader is a module with a NAME, `recognise` and `read`; a line in READERS is all it takes to add
one. Options of `read` are its keyword arguments, and what they are is in its docstring.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, get_type_hints

import msgspec

from ganger.errors import WorkloadError
from ganger.workload.model import Job
from ganger.workload.readers import (
    alibaba,
    dax,
    gwf,
    jobs,
    philly,
    sacct,
    spark,
    stg,
    swf,
    table,
    wfformat,
)
from ganger.workload.readers.opening import head


class Reader(Protocol):
    """What a module has to have to be a reader; `read` may take options after these two."""

    @property
    def NAME(self) -> str: ...  # noqa: N802  # a module's constant

    def recognise(self, head: bytes, path: Path) -> bool:
        """Whether a file that begins with these bytes is in this format. Never raises."""

    @property
    def read(self) -> Callable[..., Iterable[Job]]:
        """Called with paths, findings and options: read files as one workload, saying in
        `findings` what was seen and done.

        Raises:
            WorkloadError: with the path and line of what is wrong.
        """


READERS: dict[str, Reader] = {
    "jobs": jobs,
    "swf": swf,
    "sacct": sacct,
    "spark": spark,
    "gwf": gwf,
    "alibaba": alibaba,
    "philly": philly,
    "stg": stg,
    "wfformat": wfformat,
    "dax": dax,
    "table": table,
}
"""In the order in which they are asked whether they recognise a file."""


def detect(path: Path) -> str | None:
    """The name of the format of a file, by its content; None if no reader recognises it.

    Raises:
        WorkloadError: if the file cannot be read.
    """
    start = head(path)
    return next((name for name in READERS if READERS[name].recognise(start, path)), None)


def read_options(name: str, given: Mapping[str, str]) -> dict[str, Any]:
    """Options of a format's reader, from text to what it takes.

    Raises:
        WorkloadError: if there is no such option, or its value is none.
    """
    read = READERS[name].read
    hints = get_type_hints(read)
    parameters = [
        parameter
        for parameter in inspect.signature(read).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    known = [parameter.name for parameter in parameters]
    for parameter in parameters:
        if parameter.default is parameter.empty and parameter.name not in given:
            example = f"{name},{parameter.name}=...:PATH"
            raise WorkloadError(f"format {name} needs option {parameter.name}: {example}")
    options: dict[str, Any] = {}
    for key, text in given.items():
        if key not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise WorkloadError(f"format {name} has no option {key!r}; {has}")
        try:
            options[key] = msgspec.convert(text, hints[key], strict=False)
        except msgspec.ValidationError as error:
            raise WorkloadError(f"format {name}: option {key} is {text!r}: {error}") from None
    return options
