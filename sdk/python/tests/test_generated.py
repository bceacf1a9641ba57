"""The client that openapi-python-client generates, as docs/how-to/generate-clients.md describes."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tasker.testing import DevServer

from .conftest import ROOT

if sys.version_info < (3, 11):
    pytest.skip("the generator needs Python 3.11", allow_module_level=True)

PAGE = (ROOT / "docs/how-to/generate-clients.md").read_text().partition("\n## Python\n")[2]
TEMPLATE = """
namespace_name: shop
name: pay
version: 1.0.0
input_schema: {type: object, required: [total]}
steps:
  - {name: charge, handler: {callable: charge_card}}
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the generated package tasker_api."""
    directory = tmp_path_factory.mktemp("generated")
    shutil.copy(ROOT / "internal/api/testdata/openapi.json", directory)
    (directory / "config.yml").write_text("post_hooks: []\n")  # the code is not for readers
    command = re.findall(r"^    (openapi-python-client .*)$", PAGE, re.M)[0].split()
    program = Path(sys.executable).with_name(command[0])
    command = [str(program), *command[1:], "--config", "config.yml"]
    ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    faults = set(re.findall(r"^(?:WARNING|ERROR|Unsupported) .*", said, re.M))
    unsupported = {
        f"Unsupported content type {media}" for media in ("application/yaml", "application/x-yaml", "text/yaml")
    }
    assert faults <= {"WARNING parsing POST /v1/templates within templates.", *unsupported}
    return directory


@pytest.fixture(scope="module")
def generated(directory: Path) -> ModuleType:
    """The generated package, with all its modules imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(directory)
        package = importlib.import_module("tasker_api")
        names = [module.name for module in pkgutil.walk_packages(package.__path__, "tasker_api.")]
        for name in names:
            importlib.import_module(name)
    assert len(names) > 300
    return package


def test_the_program_of_the_page_runs(dev: DevServer, directory: Path) -> None:
    dev.client.put_template(TEMPLATE)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (directory / "program.py").write_text(program)
    env = {**os.environ, "TASKER_URL": dev.url, "TASKER_TOKEN": "any"}
    command = [sys.executable, "program.py"]
    ended = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("pay True\n404 NOT_FOUND\n", "")


def test_errors_are_models(dev: DevServer, generated: ModuleType) -> None:
    dev.client.put_template(TEMPLATE)
    models, api = sys.modules["tasker_api.models"], "tasker_api.api.tasks."
    with generated.Client(dev.url) as client:
        missing: Any = sys.modules[f"{api}get_task"].sync_detailed(uuid.UUID(int=7), client=client)
        body = models.CreateTask(namespace="shop", name="pay", context={})
        invalid: Any = sys.modules[f"{api}create_task"].sync_detailed(client=client, body=body)
    assert (missing.status_code, invalid.status_code) == (404, 400)
    assert isinstance(missing.parsed, models.Error)
    assert isinstance(invalid.parsed, models.Error)
    assert (missing.parsed.error.code, invalid.parsed.error.code) == ("NOT_FOUND", "INVALID")
    assert "total" in invalid.parsed.error.message
