"""The Python worker of the polyglot run, see sdk/conformance/README.md. It runs the step charge."""

import asyncio
import json
import logging
import os
import random
import uuid
from decimal import Decimal

from pydantic import BaseModel

from tasker import Context, Worker

logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs each request

worker = Worker("polyglot", name="python", concurrency=8)


class Reservation(BaseModel):
    quantity: int
    price: str
    rate: float
    count: int


async def execute(ctx: Context) -> str:
    """Adds a line to the file of effects, in the middle of some work. Returns the id of this run."""
    run = uuid.uuid4().hex
    longest = 0.04 if ctx.attempt == 1 else 1.5  # the report of a frozen worker may arrive meanwhile
    await asyncio.sleep(random.random() * longest)
    line = {
        "task": ctx.task_uuid,
        "step": ctx.step_name,
        "attempt": ctx.attempt,
        "run": run,
        "language": "python",
        "pid": os.getpid(),
    }
    effects = os.open(os.environ["CONFORMANCE_EFFECTS"], os.O_APPEND | os.O_WRONLY)
    os.write(effects, json.dumps(line).encode() + b"\n")
    os.close(effects)
    await asyncio.sleep(random.random() * longest)
    return run


@worker.step("charge")
async def charge(ctx: Context) -> dict[str, object]:
    reservation = await ctx.result(Reservation, "reserve")
    return {
        "amount": str(Decimal(reservation.price) * reservation.quantity),
        "rate": reservation.rate * 3,
        "count": reservation.count + 1,
        "attempt": ctx.attempt,
        "run": await execute(ctx),
    }


if __name__ == "__main__":
    worker.run()
