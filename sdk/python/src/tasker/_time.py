"""Times of the API."""

from __future__ import annotations

import re
from datetime import datetime


def parse_time(text: str) -> float:
    """Converts a time in RFC 3339, with any number of fractional digits, to seconds since 1970."""
    whole, fraction, zone = re.fullmatch(r"([^.]+?)(\.\d+)?(Z|[+-]\d\d:\d\d)", text).groups()  # type: ignore[union-attr]
    seconds = datetime.fromisoformat(whole + (zone if zone != "Z" else "+00:00")).timestamp()
    return seconds + float(fraction or 0)
