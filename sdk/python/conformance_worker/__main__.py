"""The conformance program of the Python SDK: python -m conformance_worker."""

import asyncio
import logging
import os
import time
from datetime import datetime, timezone
from typing import Any

from pydantic import BaseModel

from tasker import Context, Permanent, RetryAfter, StepError, SyncContext, Worker

logging.basicConfig(level=logging.INFO)
logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs each request

worker = Worker(
    os.environ.get("CONFORMANCE_NAMESPACE", "conformance"),
    key_file=os.environ.get("TASKER_API_KEY_FILE"),
    concurrency=int(os.environ.get("CONFORMANCE_CONCURRENCY", "4")),
    drain_timeout=int(os.environ.get("CONFORMANCE_DRAIN_MS", "5000")) / 1000,
    name=os.environ.get("CONFORMANCE_NAME", "conformance"),
)


def option(ctx: Context | SyncContext, name: str, default: Any = None) -> Any:
    """Returns a key of the initialization, or else of the context of the task."""
    return {**(ctx.context or {}), **(ctx.initialization or {})}.get(name, default)


@worker.step("echo")
async def echo(ctx: Context) -> dict[str, Any]:
    return {
        "context": ctx.context,
        "initialization": ctx.initialization,
        "results": {name: await ctx.result(Any, name) for name in ctx.dependencies},
        "attempt": ctx.attempt,
        "task_uuid": ctx.task_uuid,
        "step_uuid": ctx.step_uuid,
    }


@worker.step("item")
async def item(ctx: Context) -> dict[str, Any]:
    return {"item": ctx.item, "index": ctx.index}


@worker.step("sleep")
async def sleep(ctx: Context) -> dict[str, Any]:
    await asyncio.sleep(option(ctx, "ms") / 1000)
    return {"slept_ms": option(ctx, "ms")}


@worker.step("block")
def block(ctx: SyncContext) -> dict[str, Any]:
    time.sleep(option(ctx, "ms") / 1000)
    return {"blocked_ms": option(ctx, "ms")}


@worker.step("fail")
async def fail(ctx: Context) -> None:
    raise StepError(option(ctx, "message", "failed"), type=option(ctx, "type", "Boom"))


@worker.step("fail_permanent")
async def fail_permanent(ctx: Context) -> None:
    raise Permanent(option(ctx, "message", "failed"), type=option(ctx, "type", "Boom"))


@worker.step("retry_after")
async def retry_after(ctx: Context) -> None:
    raise RetryAfter(option(ctx, "ms") / 1000)


@worker.step("panic")
def panic() -> float:
    return 1 / 0


@worker.step("bad_result")
async def bad_result() -> dict[str, Any]:
    return {"items": [{"when": "2026-01-01"}, {"when": datetime.now(timezone.utc)}]}


@worker.step("nan_result")
async def nan_result() -> dict[str, Any]:
    return {"value": float("nan")}


class Amount(BaseModel):
    amount: int
    currency: str


@worker.step("typed")
async def typed(amount: Amount) -> dict[str, Any]:
    return {"amount": amount.amount}


@worker.step("big")
async def big(ctx: Context) -> dict[str, Any]:
    return {"data": "x" * option(ctx, "bytes")}


@worker.step("checkpoint")
async def checkpoint(ctx: Context) -> dict[str, Any]:
    row = (ctx.last_checkpoint or {"row": 0})["row"] + 1
    await ctx.checkpoint({"row": row})
    if row < 3:
        raise StepError(f"at row {row}")
    return {"row": row}


@worker.step("result_of")
async def result_of(ctx: Context) -> dict[str, Any]:
    return {"value": await ctx.result(Any, option(ctx, "of"))}


@worker.step("unicode")
async def unicode(ctx: Context) -> dict[str, Any]:
    text = option(ctx, "text")
    return {"text": text, "length": len(text)}


@worker.step("context_of")
async def context_of(ctx: Context) -> dict[str, Any]:
    return {"keys": sorted(await ctx.task_context())}


if __name__ == "__main__":
    worker.run()
