#!/usr/bin/env python3
"""Measures no-op steps per second of one worker process against a real server.

TASKER_BINARY=bin/tasker sdk/python/bench.py [--steps 20000] [--concurrency 400]

It starts a development server, creates the tasks, and then runs an asyncio worker in this process,
which stays on one core. It prints the steps per second, the processor time of this process for a
step, and its memory after 10,000 steps and at the end.
"""

import argparse
import asyncio
import os
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "src"))

from tasker import AsyncClient, Context, Worker
from tasker.models import CreateTask
from tasker.testing import DevServer

TEMPLATE = """
namespace_name: bench
name: noop
version: 1.0.0
steps:
  - name: noop
    handler: {callable: noop}
"""


def memory_mb() -> float:
    """Returns the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


async def create(url: str, steps: int) -> None:
    async with AsyncClient(url, key="", timeout=120) as client:
        await client.put_template(TEMPLATE)
        for begin in range(0, steps, 1000):
            count = min(1000, steps - begin)
            await client.create_tasks(CreateTask(namespace="bench", name="noop", context={}) for _ in range(count))


async def measure(url: str, steps: int, concurrency: int) -> None:
    worker = Worker("bench", url=url, key="", concurrency=concurrency)
    done = 0
    memory: list[float] = []

    @worker.step("noop")
    async def noop(ctx: Context) -> None:
        nonlocal done
        done += 1
        if done == min(10_000, steps):
            memory.append(memory_mb())
        if done == steps:
            worker.stop()

    began, used = time.monotonic(), time.process_time()
    await worker.serve()
    took, cpu = time.monotonic() - began, time.process_time() - used
    print(f"{steps} steps in {took:.1f} s: {steps / took:.0f} steps/s; {cpu / steps * 1e6:.0f} µs of processor a step")
    print(f"one core of this process would do {steps / cpu:.0f} steps/s")
    print(f"memory: {memory[0]:.0f} MB after {min(10_000, steps)} steps, {memory_mb():.0f} MB at the end")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, default=400)
    parser.add_argument("--url", help="a running server; the default starts one")
    options = parser.parse_args()
    if options.url:
        asyncio.run(create(options.url, options.steps))
        asyncio.run(measure(options.url, options.steps, options.concurrency))
        return
    with DevServer(test_clock=False) as server:
        os.sched_setaffinity(0, {0})
        asyncio.run(create(server.url, options.steps))
        asyncio.run(measure(server.url, options.steps, options.concurrency))


if __name__ == "__main__":
    main()
