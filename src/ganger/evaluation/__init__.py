"""Which scheduler is better, by how much, and how sure is that."""

from ganger.evaluation.compare import Contender, Row, evaluate
from ganger.evaluation.episodes import JobLists
from ganger.evaluation.tune import Tuned, TuneReport, families, tune

__all__ = [
    "Contender",
    "JobLists",
    "Row",
    "TuneReport",
    "Tuned",
    "evaluate",
    "families",
    "tune",
]
