"""A run ends at the first limit that is met, and its schedules fall over the same stretch."""

import pytest
import toys

from ganger.errors import ConfigError
from ganger.training.config import TrainConfig
from ganger.training.stopping import Position, reason_to_stop, share_done, validated


@pytest.mark.parametrize(
    ("limits", "position", "reason"),
    [
        ({"minutes": 1.0}, Position(elapsed_s=59.9), None),
        ({"minutes": 1.0}, Position(elapsed_s=60.0), "time"),
        ({"decisions": 100}, Position(decisions=99), None),
        ({"decisions": 100}, Position(decisions=100), "decisions"),
        ({"updates": 3}, Position(updates=3), "updates"),
        ({"target_ratio": 0.8}, Position(), None),
        ({"target_ratio": 0.8}, Position(best_ratio=0.81), None),
        ({"target_ratio": 0.8}, Position(best_ratio=0.8), "target"),
        ({"patience": 2}, Position(stale=1), None),
        ({"patience": 2}, Position(stale=2), "plateau"),
        ({"decisions": 100, "updates": 7, "patience": 2}, Position(updates=7), "updates"),
        ({"decisions": 100, "updates": 7, "patience": 2}, Position(stale=2), "plateau"),
    ],
)
def test_the_first_limit_that_is_met_ends_the_run(limits, position, reason):
    config = toys.config(validate_every_s=30.0, **limits)
    assert reason_to_stop(config, position) == reason


def test_without_a_limit_of_decisions_or_updates_a_run_takes_ten_minutes():
    assert TrainConfig().time_limit_s == 600
    assert TrainConfig(patience=3).time_limit_s == 600
    assert TrainConfig(decisions=5).time_limit_s == float("inf")
    assert TrainConfig(updates=5, minutes=2.0).time_limit_s == 120


def test_schedules_follow_the_limit_that_is_nearest():
    config = TrainConfig(minutes=1.0, decisions=1000, updates=10)
    assert share_done(config, Position(6.0, 200, 3)) == pytest.approx(0.3)
    assert share_done(config, Position(42.0, 200, 3)) == pytest.approx(0.7)
    assert share_done(config, Position(70.0, 200, 3)) == 1.0
    assert share_done(TrainConfig(updates=10), Position(1e6, 0, 3)) == pytest.approx(0.3)


def test_a_synchronous_runs_schedules_do_not_look_at_the_clock():
    config = TrainConfig(minutes=1.0, updates=10, sync=True)
    assert share_done(config, Position(42.0, 200, 3)) == pytest.approx(0.3)


def test_patience_counts_validations_since_the_last_best():
    position = Position()
    for ratio in (0.9, 0.95, 0.91):
        position = validated(position, ratio)
    assert (position.best_ratio, position.stale) == (0.9, 2)
    assert validated(position, 0.89).stale == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"minutes": 0.0}, "minutes is 0.0; expected more than 0"),
        ({"updates": 0}, "updates is 0; expected 1 or more"),
        ({"target_ratio": -1.0}, "target_ratio is -1.0"),
        ({"patience": 0}, "patience is 0"),
        ({"validate_every_s": -1.0}, "validate_every_s is -1.0"),
        ({"validate_every_s": 0.0, "patience": 3}, "patience needs validations"),
        ({"validate_every_s": 0.0, "target_ratio": 0.9}, "target_ratio needs validations"),
        ({"sync": True}, "needs a limit of decisions or updates"),
    ],
)
def test_limits_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**settings)
