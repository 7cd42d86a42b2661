"""How fast `ganger serve` decides, and what it does under ten times the load.

    python benchmarks/serving.py [--scheduler general] [--rate 200] [--seconds 20] [--json]

The service and its scheduler's process share one core; requests come from another one, at fixed
times whether or not earlier ones are answered. A request is a cluster of 20 jobs of 10 stages.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time

import msgspec

from ganger.simulator.observation import JobObservation, Observation, StageObservation

CONNECTIONS = 64


def observation(jobs: int, stages: int, seed: int) -> bytes:
    """A cluster at the beginning of a round, as JSON."""
    draw = random.Random(seed)
    return msgspec.json.encode(
        Observation(
            version=seed,
            time_s=100.0,
            executors=50,
            on_offer=4,
            source_job=None,
            idle=4,
            jobs=tuple(
                JobObservation(
                    id=f"job-{j}",
                    arrival_s=float(j),
                    executors=0,
                    supply=0,
                    stages=tuple(
                        StageObservation(
                            id=f"stage-{s}",
                            parents=(f"stage-{draw.randrange(s)}",) if s else (),
                            tasks=draw.randint(1, 100),
                            launched=0,
                            finished=0,
                            committed=0,
                            moving=0,
                            executors=0,
                            estimated_task_s=draw.uniform(0.1, 5),
                            schedulable=s == 0,
                        )
                        for s in range(stages)
                    ),
                )
                for j in range(jobs)
            ),
        )
    )


async def load(port: int, bodies: list[bytes], rate: float, seconds: float) -> dict[str, float]:
    """Requests at a fixed rate; `sent` latencies leave out the wait for a free connection."""
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(await asyncio.open_connection("127.0.0.1", port))
    latencies: list[float] = []
    since_sent: list[float] = []
    statuses: dict[int, int] = {}

    async def ask(due: float, body: bytes) -> None:
        reader, writer = await free.get()
        sent = time.perf_counter()
        writer.write(
            b"POST /decide HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body
        )
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        length = next(int(s.split(":")[1]) for s in lines if s.startswith("content-length"))
        await reader.readexactly(length)
        status = int(lines[0].split()[1])
        statuses[status] = statuses.get(status, 0) + 1
        if status == 200:
            latencies.append(time.perf_counter() - due)
            since_sent.append(time.perf_counter() - sent)
        free.put_nowait((reader, writer))

    begin = time.perf_counter() + 0.1
    asked = []
    for number in range(int(rate * seconds)):
        due = begin + number / rate
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        asked.append(asyncio.create_task(ask(due, bodies[number % len(bodies)])))
    await asyncio.gather(*asked)
    took = time.perf_counter() - begin
    while not free.empty():
        free.get_nowait()[1].close()
    ordered = sorted(latencies)
    return {
        "requests_per_s": round(rate),
        "answered_per_s": round(len(ordered) / took),
        "answered": statuses.get(200, 0),
        "shed": statuses.get(503, 0),
        "others": sum(n for status, n in statuses.items() if status not in (200, 503)),
        "p50_ms": round(1e3 * statistics.median(ordered), 2),
        "p99_ms": round(1e3 * ordered[int(0.99 * len(ordered))], 2),
        "max_ms": round(1e3 * ordered[-1], 2),
        "sent_p99_ms": round(1e3 * sorted(since_sent)[int(0.99 * len(ordered))], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scheduler", default="general")
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    service = subprocess.Popen(
        [sys.executable, "-m", "ganger", "serve", given.scheduler, "--port", "0"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores[:1]),
    )
    os.sched_setaffinity(0, cores[1:] or cores)
    try:
        assert service.stderr is not None
        line = next(line for line in service.stderr if "decides at" in line)
        port = int(line.split("/decide")[0].rsplit(":", 1)[1])
        bodies = [observation(20, 10, seed) for seed in range(64)]
        asyncio.run(load(port, bodies, 50, 2))
        phases = {
            "usual": asyncio.run(load(port, bodies, given.rate, given.seconds)),
            "ten times": asyncio.run(load(port, bodies, 10 * given.rate, given.seconds / 4)),
            "usual again": asyncio.run(load(port, bodies, given.rate, given.seconds / 2)),
        }
    finally:
        service.send_signal(signal.SIGINT)
        out, _ = service.communicate(timeout=20)
    if given.json:
        print(json.dumps(phases | {"service": json.loads(out)}))
        return
    for name, figures in phases.items():
        print(f"{name:12s} " + "  ".join(f"{key} {value}" for key, value in figures.items()))
    counted = {k: v for k, v in json.loads(out).items() if "fallback" in k or "latency" in k}
    print(f"fallbacks: {counted or 'none'}")


if __name__ == "__main__":
    main()
