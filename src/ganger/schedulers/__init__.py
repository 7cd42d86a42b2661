"""Schedulers that are written down, not learned. A scheduler is spelled `name:parameter=value,...`.

To add one, write a class with `decide` (docs/schedulers.md) and give it a line in SCHEDULERS.
"""

from typing import Any, get_args

import msgspec

from ganger.errors import SchedulerError
from ganger.schedulers.cpf import CriticalPathFirst
from ganger.schedulers.drf import Drf
from ganger.schedulers.fair import Fair
from ganger.schedulers.fcfs import Fcfs
from ganger.schedulers.fifo import Fifo
from ganger.schedulers.heuristic import Heuristic
from ganger.schedulers.kshortest import KShortest
from ganger.schedulers.nonlinear import F1, F2, F3, F4
from ganger.schedulers.random import Random
from ganger.schedulers.saf import Saf
from ganger.schedulers.sjf import Ljf, Sjf
from ganger.schedulers.srpt import Srpt
from ganger.schedulers.tetris import Tetris
from ganger.schedulers.utility import Unicep, Wfp3
from ganger.schedulers.wfair import WeightedFair

__all__ = [
    "F1",
    "F2",
    "F3",
    "F4",
    "SCHEDULERS",
    "CriticalPathFirst",
    "Drf",
    "Fair",
    "Fcfs",
    "Fifo",
    "Heuristic",
    "KShortest",
    "Ljf",
    "Random",
    "Saf",
    "Sjf",
    "Srpt",
    "Tetris",
    "Unicep",
    "WeightedFair",
    "Wfp3",
    "parse_scheduler",
    "parse_schedulers",
    "spellings",
]

SCHEDULERS: dict[str, type[Heuristic]] = {
    "fifo": Fifo,
    "fair": Fair,
    "wfair": WeightedFair,
    "srpt": Srpt,
    "cpf": CriticalPathFirst,
    "drf": Drf,
    "tetris": Tetris,
    "kshortest": KShortest,
    "random": Random,
    "fcfs": Fcfs,
    "sjf": Sjf,
    "ljf": Ljf,
    "saf": Saf,
    "wfp3": Wfp3,
    "unicep": Unicep,
    "f1": F1,
    "f2": F2,
    "f3": F3,
    "f4": F4,
}


def parse_scheduler(text: str) -> Heuristic:
    """The scheduler that a spelling such as `srpt:cap=sqrt,c=1` names; `str` gives it back.

    Raises:
        SchedulerError: the name, a parameter or its value is wrong; the message lists what exists.
    """
    name, _, rest = (word.strip() for word in text.partition(":"))
    if (scheduler := SCHEDULERS.get(name)) is None:
        raise SchedulerError(f"scheduler {name!r} is unknown; there are {', '.join(SCHEDULERS)}")
    fields = {field.name: field for field in msgspec.structs.fields(scheduler)}
    given: dict[str, Any] = {}
    for part in rest.split(",") if rest else ():
        parameter, equals, value = (word.strip() for word in part.partition("="))
        if parameter not in fields:
            choices = f"it has {', '.join(fields)}" if fields else "it has none"
            raise SchedulerError(f"{text}: {name} has no parameter {parameter!r}; {choices}")
        if not equals or parameter in given:
            raise SchedulerError(f"{text}: expected {parameter}=VALUE, once")
        given[parameter] = _value(value, fields[parameter].type, f"{text}: {parameter}")
    return scheduler(**given)


def _value(text: str, wanted: Any, what: str) -> Any:
    if wanted is int or float in (wanted, *get_args(wanted)):
        try:
            return int(text) if wanted is int else float(text)
        except ValueError:
            kind = "a whole number" if wanted is int else "a number"
            raise SchedulerError(f"{what} is {text!r}; expected {kind}") from None
    return text  # a word: the scheduler knows which ones


def parse_schedulers(text: str) -> list[Heuristic]:
    """Several schedulers, as in `fair,srpt:cap=sqrt,c=1,fifo`."""
    return [parse_scheduler(one) for one in spellings(text)]


def spellings(text: str) -> list[str]:
    """The same, not yet looked at."""
    spelled: list[str] = []
    for part in text.split(","):
        if spelled and "=" in part and ":" not in part:  # one more parameter of the last one
            spelled[-1] += "," + part
        else:
            spelled.append(part)
    return spelled
