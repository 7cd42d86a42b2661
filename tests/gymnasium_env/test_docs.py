"""docs/gym.md: its example runs, and it names every setting and everything observed."""

import re
from pathlib import Path

import pytest

pytest.importorskip("gymnasium", reason="gymnasium, of the extra gym, is absent")

from ganger.gym import ClusterEnv
from ganger.gym.clusters import Setting

DOCS = Path(__file__).resolve().parents[2] / "docs" / "gym.md"


def test_the_example_runs(capsys: pytest.CaptureFixture[str]):
    (example,) = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), re.DOTALL | re.MULTILINE)
    exec(compile(example, str(DOCS), "exec"), {})
    assert re.fullmatch(r"\d+\.\d s\n", capsys.readouterr().out)


def test_settings_and_observations_are_documented():
    text = DOCS.read_text()
    env = ClusterEnv(executors=2, jobs=2)
    _, info = env.reset(seed=0)
    for name in (*Setting._fields, *env.observation_space, *info, "mean_jct_s"):
        assert re.search(rf'[`"]{name}[`"]', text), name
    for name in ("stages", "jobs"):
        width = env.observation_space[name].shape[1]
        assert f"| `{name}` | max_{name}, {width} |" in text
