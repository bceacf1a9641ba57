"""Workers and a client for the Tasker workflow engine.

worker = Worker("shop")

@worker.step("charge_card")
async def charge_card(order: Order, ctx: Context) -> Payment: ...

worker.run()
"""

from .async_client import AsyncClient
from .client import Client
from .context import Context, SyncContext
from .errors import (
    Conflict,
    Forbidden,
    Internal,
    Invalid,
    NotFound,
    NotSupported,
    Permanent,
    RetryAfter,
    StaleLease,
    StepError,
    TaskerError,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from .worker import HandlersStuck, Worker

__all__ = [
    "AsyncClient",
    "Client",
    "Conflict",
    "Context",
    "Forbidden",
    "HandlersStuck",
    "Internal",
    "Invalid",
    "NotFound",
    "NotSupported",
    "Permanent",
    "RetryAfter",
    "StaleLease",
    "StepError",
    "SyncContext",
    "TaskerError",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "Worker",
]
