"""Settings from TOML files."""

import math

import msgspec
import pytest

from ganger.config import Config, read_toml
from ganger.errors import ConfigError


class Learner(Config):
    """How to learn."""

    rho_bar: float = 1.0
    """Largest importance weight."""

    epochs: int = 2
    """Passes over each batch."""

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ConfigError(f"epochs is {self.epochs}; expected 1 or more")


class Run(Config):
    """A run."""

    learner: Learner = Learner()
    name: str = "run"


@pytest.fixture
def toml(tmp_path):
    def write(text: str | bytes):
        path = tmp_path / "settings.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_a_file_sets_what_it_names_and_leaves_the_rest_at_its_default(toml):
    run = read_toml(toml("name = 'x'\n[learner]\nrho_bar = 2\n"), Run)

    assert run == Run(name="x", learner=Learner(rho_bar=2.0))
    assert isinstance(run.learner.rho_bar, float)
    assert read_toml(toml(""), Run) == Run()


def test_infinity_is_a_float(toml):
    assert math.isinf(read_toml(toml("rho_bar = inf"), Learner).rho_bar)


def test_settings_are_frozen_and_have_no_order():
    with pytest.raises(AttributeError):
        Learner().epochs = 3
    with pytest.raises(TypeError):
        Config(1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[learner]\nrho_barr = 1", "learner.rho_barr is not a setting; did you mean rho_bar?"),
        ("zebra = 1", "zebra is not a setting; there are: learner, name"),
        ("[learner]\nepochs = 1.5", "Expected `int`, got `float` - at `$.learner.epochs`"),
        ("learner = 3", "Expected `object`, got `int` - at `$.learner`"),
        ("[learner]\nepochs = 0", "epochs is 0; expected 1 or more"),
        ("name = ", "is not TOML: Invalid value"),
        (b"name = '\xff'", "is not text in UTF-8"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_the_setting(toml, text, complaint):
    path = toml(text)

    with pytest.raises(ConfigError) as refusal:
        read_toml(path, Run)

    message = str(refusal.value)
    assert message.startswith(f"{path}: ")
    assert complaint in message
    assert "\n" not in message


def test_an_absent_file_and_a_directory_are_refused_in_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read: No such file"):
        read_toml(tmp_path / "absent.toml", Run)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path, Run)


def test_settings_survive_json():
    run = Run(learner=Learner(rho_bar=0.1 + 0.2))

    assert msgspec.json.decode(msgspec.json.encode(run), type=Run) == run
