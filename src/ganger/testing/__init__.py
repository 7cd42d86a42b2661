"""Checks that schedulers and readers written elsewhere keep to what Ganger expects of them."""

from ganger.errors import ConformanceError
from ganger.testing.cases import CASES, Case, case
from ganger.testing.readers import check_reader
from ganger.testing.schedulers import check_scheduler

__all__ = ["CASES", "Case", "ConformanceError", "case", "check_reader", "check_scheduler"]
