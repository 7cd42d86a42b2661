"""The deployment examples, as far as they can be tried on one machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import toys
from serving.slurm.cluster import SlurmCluster, free_ports, missing

from ganger.training.run_directory import RunDirectory

pytest.importorskip("ray", reason="needs ganger[ray]")

DEPLOY = Path(__file__).parents[3] / "deploy"
SOON_S = 240.0


@pytest.mark.ray
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_the_slurm_script_trains_on_the_nodes_it_gets_and_leaves_nothing(tmp_path):
    workload = toys.write_toy_workload(tmp_path / "toy.jobs.jsonl")
    settings = {
        "executors": 1, "jobs": 8, "interarrival": 6, "steps": 32, "minutes": 4,
        "validate-every": 0, "run-dir": tmp_path / "run", "workload": workload,
    }  # fmt: skip
    flags = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    with SlurmCluster(nodes=1, cpus=2) as cluster:
        cluster.environment |= {
            "PATH": f"{Path(sys.executable).parent}:{cluster.environment['PATH']}",
            "RAY_PORT": str(free_ports(1)[0]),
            "HOME": str(tmp_path),  # its token stays here
            "RAY_TMPDIR": str(cluster.at),
            "GANGER_ENVIRONMENTS": "8",
        }
        out = tmp_path / "out"
        job = cluster.run(
            "sbatch", "--parsable", "--nodes=1", "--cpus-per-task=2", f"--output={out}",
            str(DEPLOY / "slurm.sbatch"), *flags,
        ).strip()  # fmt: skip
        until(lambda: "update" in read(tmp_path / "run" / "metrics.jsonl") or ended(cluster), out)
        cluster.run("scancel", "--batch", "--signal=TERM", job)
        cluster.wait_idle(SOON_S)
        state = cluster.run("scontrol", "show", "job", job)
    said = out.read_text()
    assert "JobState=COMPLETED" in state, said
    run = RunDirectory.open(tmp_path / "run")
    assert run.stop_reason == "stopped", "it was told to end, and did so in good order"
    assert run.latest_checkpoint().step > 0
    assert (tmp_path / ".ray" / "auth_token").exists()
    deadline = time.monotonic() + 20
    while ours := processes_with(str(tmp_path)):
        assert time.monotonic() < deadline, ours
        time.sleep(0.1)


def read(path):
    return path.read_text() if path.exists() else ""


def ended(cluster):
    return not cluster.run("squeue", "--noheader").strip()


def until(condition, out):
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline, read(out)
        time.sleep(0.2)


def processes_with(text):
    """Those whose environment names it, by what they run."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"HOME={text}".encode() in environment.read_bytes():
                found.append((environment.parent / "cmdline").read_bytes().replace(b"\0", b" "))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("name", ["slurm.sbatch", "ray-job.sh"])
def test_scripts_are_whole(name):
    subprocess.run(["bash", "-n", DEPLOY / name], check=True)


def test_the_job_script_says_what_it_lacks():
    environment = {k: v for k, v in os.environ.items() if k != "RAY_API_SERVER_ADDRESS"}
    done = subprocess.run(
        [DEPLOY / "ray-job.sh"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "the address of the cluster, as http://HEAD:8265" in done.stderr


def test_the_manifest_names_settings_that_there_are():
    yaml = pytest.importorskip("yaml")
    from ganger.training.config import TrainConfig

    manifest = yaml.safe_load((DEPLOY / "kuberay.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayJob")
    command = manifest["spec"]["entrypoint"].split()
    assert command[:2] == ["ganger", "train"]
    given = dict(zip(command[2::2], command[3::2], strict=True))
    names = {name.removeprefix("--").replace("-", "_"): value for name, value in given.items()}
    run_dir = names.pop("run_dir")
    types = {"actors": int, "environments": int, "minutes": float}
    config = TrainConfig(**{name: types.get(name, str)(value) for name, value in names.items()})
    head = manifest["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    mounted = head["containers"][0]["volumeMounts"][0]["mountPath"]
    assert run_dir.startswith(mounted)
    assert config.workload.startswith(mounted)
    workers = manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    cpus = int(workers["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"])
    assert config.acting_threads == workers["replicas"] * cpus
