import re
from pathlib import Path

import msgspec
import pytest

from ganger.schedulers import SCHEDULERS

DOCS = Path(__file__).resolve().parents[2] / "docs" / "schedulers.md"


def test_the_documented_scheduler_runs(capsys: pytest.CaptureFixture[str]):
    (example,) = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), re.DOTALL | re.MULTILINE)
    exec(compile(example, str(DOCS), "exec"), {})
    assert float(capsys.readouterr().out) > 0


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_and_parameter_is_documented(name):
    text = DOCS.read_text()
    assert f"| `{name}` |" in text
    for field in msgspec.structs.fields(SCHEDULERS[name]):
        assert re.search(rf"`{field.name}[`=]", text), field.name
