"""Requests and answers of the API, apart from the transport."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from pydantic import TypeAdapter, ValidationError

from . import _json
from ._key import KeySource
from .errors import CODES, Invalid, TaskerError, Unavailable

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8080"
SHOWN = 200  # characters of an unexpected answer in an error
MAX_RETRY_AFTER = 3600.0


class ForeignAnswer(Unavailable):
    """Something else than the API responded, such as a proxy. The outcome of the request is unknown."""


@dataclass
class Request:
    """One request. repeatable means that applying it twice has the effect of applying it once."""

    method: str
    path: str
    query: Mapping[str, Any] | None = None
    body: bytes | None = None
    media: str = "application/json"
    idempotency_key: str | None = None
    repeatable: bool = False
    wait: float = 0.0  # seconds that the server may wait before it answers


def path(*segments: str) -> str:
    """Joins segments to a path of the API and escapes them. An empty segment, . or .. is Invalid."""
    for s in segments:
        if s in ("", ".", ".."):
            raise Invalid(f"invalid path element {s!r}: must not be empty, . or ..", sent=False)
    return "/v1/" + "/".join(quote(s, safe="") for s in segments)


def base_url(url: str | None) -> str:
    """Returns the URL of the server without a final slash: the argument, TASKER_URL or the default."""
    text = url or os.environ.get("TASKER_URL") or DEFAULT_URL
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Invalid(f"invalid server URL {text!r}: must look like {DEFAULT_URL}", sent=False)
    return text.rstrip("/")


def uses_proxy(url: str) -> bool:
    """Reports whether the proxy settings of the environment apply: not for the same machine."""
    return urlsplit(url).hostname not in ("127.0.0.1", "localhost", "::1")


class Endpoint:
    """Builds httpx requests for one server and reads its answers. It is thread-safe."""

    def __init__(self, url: str | None, keys: KeySource) -> None:
        self.url = base_url(url)
        self._keys = keys

    def build(self, client: httpx.Client | httpx.AsyncClient, request: Request, timeout: float) -> httpx.Request:
        """Converts a request. It raises Unauthorized if the key file has no key."""
        headers = {"Accept": "application/json", "User-Agent": "tasker-python", **self._keys.header()}
        if request.body is not None:
            headers["Content-Type"] = request.media
        if request.idempotency_key:
            headers["Idempotency-Key"] = request.idempotency_key
        return client.build_request(
            request.method,
            self.url + request.path,
            params=request.query or None,
            content=request.body,
            headers=headers,
            timeout=httpx.Timeout(timeout + request.wait, connect=min(timeout, 10.0)),
        )

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Converts errors of the transport to Unavailable."""
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
            cause = str(error) or type(error).__name__
            raise Unavailable(f"cannot reach {self.url}: {cause}; is the server running?", sent=sent) from None

    def answer(self, response: httpx.Response, fields: tuple[str, ...]) -> dict[str, Any]:
        """Returns the decoded object, which must have these keys. Other answers raise ForeignAnswer."""
        if not response.is_success:
            raise self.refusal(response)
        try:
            body = _json.loads(response.content)
        except ValueError:
            raise self._foreign(response) from None
        if not (isinstance(body, dict) and all(f in body for f in fields)):
            raise self._foreign(response)
        return body

    def decode(self, adapter: TypeAdapter[T], response: httpx.Response) -> T:
        """Returns the body as a type of the API."""
        if not response.is_success:
            raise self.refusal(response)
        try:
            return adapter.validate_json(response.content)
        except ValidationError as error:
            raise self._foreign(response, f"{error.error_count()} fields are missing or of another type") from None

    def no_content(self, response: httpx.Response) -> None:
        """Accepts 204 only."""
        if response.status_code != 204:
            raise self._foreign(response) if response.is_success else self.refusal(response)

    def document(self, response: httpx.Response) -> Any:
        """Returns a bare document, whose ETag proves that it is from the API."""
        if not response.is_success:
            raise self.refusal(response)
        digest = base64.urlsafe_b64encode(hashlib.sha256(response.content).digest()).rstrip(b"=").decode()
        if digest not in response.headers.get("ETag", ""):
            raise self._foreign(response, "the ETag does not match the document")
        return _json.loads(response.content)

    def refusal(self, response: httpx.Response) -> TaskerError:
        """Converts an answer with an error status."""
        try:
            error = _json.loads(response.content)["error"]
            code, message = error["code"], error["message"]
        except (ValueError, KeyError, TypeError):
            return self._foreign(response)
        if not (isinstance(code, str) and code and isinstance(message, str) and message):
            return self._foreign(response)
        return CODES.get(code, TaskerError)(
            message, code=code, details=error.get("details"), retry_after=_retry_after(response)
        )

    def _foreign(self, response: httpx.Response, fault: str = "") -> ForeignAnswer:
        said = f"{self.url} responded with {response.status_code} {response.reason_phrase}"
        if fault:
            said += f": {fault}"
        elif to := response.headers.get("Location"):
            said += f", which points to {self._keys.hide(to)[:SHOWN]}; use that address as the server's URL"
        elif text := " ".join(re.sub(r"[^\x20-\x7e]", " ", response.text[: 4 * SHOWN]).split()):
            said += f": {self._keys.hide(text)[:SHOWN]}"
        return ForeignAnswer(f"{said}; is it a Tasker server?", retry_after=_retry_after(response))


def _retry_after(response: httpx.Response) -> float:
    """Parses a Retry-After header: seconds or a time. It returns 0 if it is missing or invalid."""
    text = response.headers.get("Retry-After", "")
    try:
        seconds = float(text) if text.isdigit() else parsedate_to_datetime(text).timestamp() - time()
    except (ValueError, TypeError):
        return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)
