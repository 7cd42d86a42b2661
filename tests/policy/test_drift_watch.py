"""A policy's drift score is kept with its run and watched while it decides."""

import numpy as np

import ganger
from ganger.policy.drift import WINDOW, Drift, Watcher, save_drift, saved_drift
from ganger.serving.asking import SMALL, Asked
from ganger.serving.process import Setting


def test_a_score_is_kept_for_the_policy_it_was_made_for(tmp_path):
    drift = Drift([0.0, 1.0], [[1.0, 0.0], [0.0, 1.0]], 2.0)
    save_drift(tmp_path, 7, drift)
    assert saved_drift(tmp_path, 7) == drift
    assert saved_drift(tmp_path, 8) is None, "the policy has been trained on since"
    (tmp_path / "drift.json").write_text("{")
    assert saved_drift(tmp_path, 7) is None
    assert saved_drift(tmp_path / "nowhere", 7) is None


def test_a_window_of_decisions_gives_a_score():
    chosen = ganger.load_scheduler("general").choose(SMALL)
    from ganger.policy.drift import seen_of

    seen = seen_of(chosen.rows)[0]
    home = Drift(seen.tolist(), np.eye(len(seen)).tolist(), 1.0)
    away = Drift((seen + 3).tolist(), np.eye(len(seen)).tolist(), 1.0)
    for drift, expected in ((home, 0.0), (away, 3 * len(seen) ** 0.5)):
        watcher = Watcher(drift)
        for _ in range(WINDOW - 1):
            watcher.see(chosen.rows)
        assert watcher.score is None
        watcher.see(chosen.rows)
        assert abs(watcher.score - expected) < 1e-6


def test_without_a_score_nothing_is_watched():
    asked = Asked(Setting("general"))
    assert asked.round(SMALL)[2] is None
