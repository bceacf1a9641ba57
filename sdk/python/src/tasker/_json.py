"""JSON encoding that names the place of a value that is not JSON."""

from __future__ import annotations

import json
import math
from json import loads
from typing import Any

from pydantic import BaseModel

__all__ = ["NotJSON", "encode", "loads"]


class NotJSON(ValueError):
    """A value that cannot be encoded. The message begins with its path."""


def _model(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_model)


def encode(value: Any, path: str) -> bytes:
    """Encodes a value, in which pydantic models may occur, as JSON.

    path names the value in the NotJSON error, which is raised for a value that is not JSON.
    """
    try:
        return _encoder.encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        try:
            fault = _fault(value, path)
        except RecursionError:
            fault = f"{path}: nested too deeply"
        raise NotJSON(fault or f"{path}: {error or 'not JSON'}") from None


def _fault(value: Any, path: str) -> str | None:
    """Returns the path and the fault of the first value that is not JSON, or None."""
    if value is None or isinstance(value, bool | int):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{path}: {value} is not a JSON number"
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return f"{path}: the text has half of a surrogate pair"
        return None
    if isinstance(value, BaseModel):
        return _fault(value.model_dump(mode="python"), path)
    if isinstance(value, dict):
        return _fault_of_dict(value, path)
    if isinstance(value, list | tuple):
        faults = (_fault(item, f"{path}[{i}]") for i, item in enumerate(value))
        return next((f for f in faults if f), None)
    return f"{path}: {type(value).__name__} is not JSON"


def _fault_of_dict(value: dict[Any, Any], path: str) -> str | None:
    for key, item in value.items():
        if not isinstance(key, str | int | float | bool | type(None)):
            return f"{path}: key {key!r} is not a string"
        if fault := _fault(item, f"{path}.{key}"):
            return fault
    return None
