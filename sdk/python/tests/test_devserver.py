"""DevServer without a server: errors at its start, and its parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasker.testing import DevServer


def test_a_missing_program_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKER_BINARY", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="set TASKER_BINARY"):
        DevServer()


def test_a_program_that_ends_is_explained(tmp_path: Path) -> None:
    program = tmp_path / "tasker"
    program.write_text("#!/bin/sh\necho 'no PostgreSQL'\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match="ended at its start: no PostgreSQL"):
        DevServer(binary=program).__enter__()


def test_a_server_that_does_not_run_has_no_client(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="use it in a with block"):
        _ = DevServer(binary=tmp_path).client
