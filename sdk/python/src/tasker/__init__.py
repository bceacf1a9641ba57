"""Workers and a client for the Tasker workflow engine.

worker = Worker("shop")

@worker.step("charge_card")
async def charge_card(order: Order, ctx: Context) -> Payment: ...

worker.run()
"""

from typing import TYPE_CHECKING, Any

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
    WaitTimeout,
)
from .worker import HandlersStuck, Worker

if TYPE_CHECKING:
    from .async_client import AsyncClient
    from .client import Client

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
    "WaitTimeout",
    "Worker",
]


def __getattr__(name: str) -> Any:
    """Imports the clients when they are used: a worker starts sooner without their models."""
    if name == "AsyncClient":
        from .async_client import AsyncClient

        return AsyncClient
    if name == "Client":
        from .client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
