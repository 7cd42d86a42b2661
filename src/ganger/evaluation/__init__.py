"""Which scheduler is better, by how much, and how sure is that."""

from ganger.evaluation.compare import Contender, Row, baseline_of, evaluate, parse_contenders
from ganger.evaluation.episodes import JobLists
from ganger.evaluation.replay import LogError, log_error, recorded_part, replay
from ganger.evaluation.report import Report, report
from ganger.evaluation.tune import Tuned, TuneReport, families, tune

__all__ = [
    "Contender",
    "JobLists",
    "LogError",
    "Report",
    "Row",
    "TuneReport",
    "Tuned",
    "baseline_of",
    "evaluate",
    "families",
    "log_error",
    "parse_contenders",
    "recorded_part",
    "replay",
    "report",
    "tune",
]
