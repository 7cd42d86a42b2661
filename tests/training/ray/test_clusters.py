"""Training on Rays of its own: one that is not there, two nodes of which one dies, two learners."""

import shutil
import tempfile
import threading

import pytest
import toys
from ray_processes import SOON_S, Family, eventually, short_temporary_directory

from ganger.errors import ConfigError
from ganger.training import loop
from ganger.training.run_directory import RunDirectory

ray = pytest.importorskip("ray", reason="needs ganger[ray]")

from ray.cluster_utils import Cluster  # noqa: E402

from ganger.training.exchange import ray as on_ray  # noqa: E402  # needs Ray

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "no Ray cluster at 127.0.0.1:1"),
        ("127.0.0.1:99999", "no Ray cluster at 127.0.0.1:99999"),
        ("ray://127.0.0.1:10001", "expected auto, or HOST:PORT"),
        ("127.0.0.1", "expected auto, or HOST:PORT"),
    ],
)
def test_an_address_where_nobody_answers_is_one_clear_line(address, message):
    config = toys.config(engine="ray", address=address)
    with pytest.raises(ConfigError, match=message), on_ray.cluster(config):
        pass


def test_a_cluster_of_two_nodes_loses_one_and_training_finishes(tmp_path):
    family = Family()
    directory = tempfile.mkdtemp(prefix="ganger-ray-test-")
    node = {
        "num_cpus": 2,
        "object_store_memory": 2**27,
        "include_dashboard": False,
        "temp_dir": directory,
    }
    nodes = Cluster(initialize_head=True, head_node_args=node)
    try:
        del node["include_dashboard"]
        second = nodes.add_node(**node)
        second_id = second.node_id
        config = toys.config(
            workload=toys.write_toy_workload(tmp_path / "toy.jobs.jsonl"),
            engine="ray",
            address=nodes.address,
            actors=2,
            minutes=SOON_S / 60,
        )
        places, stop = [], threading.Event()
        original = on_ray.RayExchange._begin

        def begin(self, slot):
            original(self, slot)
            if slot.process is not None:
                places.append((slot.index, slot.generation, slot.process.node == second_id))

        killed_at = []

        def progress(metrics):
            if not killed_at and metrics["actors_acting"] == 2:
                family.look()
                nodes.remove_node(second, allow_graceful=False)
                killed_at.append(metrics["decisions"])
            elif killed_at and metrics["actors_acting"] == 2 and metrics["actor_restarts"]:
                stop.set()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(on_ray.RayExchange, "_begin", begin)
            outcome = loop.train(config, tmp_path / "run", progress=progress, stop=stop)
    finally:
        family.look()
        nodes.shutdown()
        shutil.rmtree(directory, ignore_errors=True)
    assert outcome.reason == "stopped"
    assert outcome.decisions > killed_at[0]
    lost = [index for index, generation, on_second in places if on_second and not generation]
    assert len(lost) == 1, "one process was on each node"
    anew = [place for place in places if place[1]]
    # Of generation 2 if Ray first placed it on the dead node again.
    assert [(index, on_second) for index, _, on_second in anew] == [(lost[0], False)]
    records = [r for r in RunDirectory.open(tmp_path / "run").metrics() if "kl" in r]
    assert [r["step"] for r in records] == list(range(1, outcome.updates + 1))
    assert all(r["dropped_damaged"] == 0 for r in records)
    assert not ray.is_initialized()
    assert eventually(family.is_gone), family.left()


def test_two_learners_on_ray_have_actors_of_their_own_and_survive_a_death(tmp_path):
    family = Family()
    config = toys.config(
        workload=toys.write_toy_workload(tmp_path / "toy.jobs.jsonl"),
        engine="ray",
        actors=2,
        learners=2,
        minutes=SOON_S / 60,
    )
    stop, seen, killed = threading.Event(), [], []

    def progress(metrics):
        seen.append(metrics)
        if len(seen) == 4:
            family.look()
            killed.extend(p for p in family.left() if "_Following" in " ".join(p.cmdline()))
            for process in killed:
                process.kill()
        if len(seen) == 10:
            family.look()
            stop.set()

    with short_temporary_directory():
        outcome = loop.train(config, tmp_path / "run", progress=progress, stop=stop)
        assert eventually(family.is_gone), family.left()
    assert len(killed) == 1
    assert outcome.reason == "stopped"
    assert seen[-1]["learner_restarts"] == 1
    assert seen[-1]["decisions"] == 10 * config.environments * config.steps
