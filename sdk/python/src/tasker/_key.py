"""The API key of a client or worker."""

from __future__ import annotations

import os

from .errors import Invalid, Unauthorized

MAX_LENGTH = 16 << 10


class KeySource:
    """Provides the API key: a text, or a file that is read for each request. It is thread-safe."""

    def __init__(self, key: str | None = None, key_file: str | os.PathLike[str] | None = None) -> None:
        """Uses TASKER_TOKEN or TASKER_TOKEN_FILE if neither is given. An empty value means no key."""
        if key is None and key_file is None:
            key_file = os.environ.get("TASKER_TOKEN_FILE")
            key = os.environ.get("TASKER_TOKEN") if not key_file else None
        if key and not _valid(key):
            raise Invalid("the API key must be one word of printable ASCII characters")
        self._file = os.fspath(key_file) if key_file else None
        self._key = key or ""

    def header(self) -> dict[str, str]:
        """Returns the Authorization header. It raises Unauthorized if the file has no key."""
        if self._file:
            self._refresh(self._file)
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def hide(self, text: str) -> str:
        """Removes the key from a text that a proxy may have copied from the request."""
        return text.replace(self._key, "[key]") if self._key else text

    def _refresh(self, path: str) -> None:
        try:
            with open(path, encoding="utf-8") as file:
                key = file.read(MAX_LENGTH + 2).strip()
        except (OSError, ValueError) as error:
            if not self._key:
                raise Unauthorized(f"cannot read the API key file {path}: {error}", sent=False) from None
            return  # the file is being replaced
        if key and _valid(key):
            self._key = key
        elif not self._key:
            raise Unauthorized(f"the API key file {path} must contain one word of printable ASCII", sent=False)


def _valid(key: str) -> bool:
    return len(key) <= MAX_LENGTH and all("!" <= c <= "~" for c in key)
