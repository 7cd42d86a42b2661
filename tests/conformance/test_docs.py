"""docs/extending.md: its examples run, and its tables name the checks."""

import inspect
import re
from pathlib import Path

import pytest

from ganger.testing import check_reader, check_scheduler

DOCS = Path(__file__).resolve().parents[2] / "docs" / "extending.md"


def test_the_examples_run(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), re.DOTALL | re.MULTILINE)
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, str(DOCS), "exec"), {})


def test_every_check_is_documented():
    documented = set(re.findall(r"^\| `([\w ]+)` \|", DOCS.read_text(), re.MULTILINE))
    named = set()
    for check in (check_scheduler, check_reader):
        named |= set(re.findall(r"^- ([\w ]+):", inspect.getdoc(check), re.MULTILINE))
    assert documented == named
