"""A client that openapi-python-client generates from the OpenAPI document works with the server."""

from __future__ import annotations

import importlib
import pkgutil
import re
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

TEMPLATE = """
namespace_name: generated
name: order
version: 1.0.0
input_schema: {type: object, required: [total]}
steps:
  - {name: charge, handler: {callable: charge_card}}
"""


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The package of the generated client, with all its modules imported."""
    directory = tmp_path_factory.mktemp("generated")
    (directory / "config.yml").write_text("post_hooks: []\n")  # the code is not for readers
    document = ROOT / "internal/api/testdata/openapi.json"
    arguments = f"generate --path {document} --output-path {directory}/tasker_api --meta none --config config.yml"
    program = Path(sys.executable).with_name("openapi-python-client")
    ended = subprocess.run([program, *arguments.split()], cwd=directory, capture_output=True, text=True, check=False)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    # The generator has no bodies in YAML: such a request is generated with JSON only.
    assert set(re.findall(r"^(?:WARNING|ERROR) .*", said, re.M)) <= {
        "WARNING parsing POST /v1/templates within templates."
    }
    assert set(re.findall(r"^Unsupported .*", said, re.M)) <= {
        f"Unsupported content type {media}" for media in ("application/yaml", "application/x-yaml", "text/yaml")
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(directory)
        package = importlib.import_module("tasker_api")
        names = [module.name for module in pkgutil.walk_packages(package.__path__, "tasker_api.")]
        for name in names:
            importlib.import_module(name)
    assert len(names) > 300
    return package


def operation(name: str) -> Any:
    return sys.modules[f"tasker_api.api.tasks.{name}"]


def test_tasks_are_created_read_and_listed(dev: DevServer, generated: ModuleType) -> None:
    dev.client.put_template(TEMPLATE)
    models = sys.modules["tasker_api.models"]
    with generated.Client(dev.url) as client:
        body = models.CreateTask(namespace="generated", name="order", context={"total": 5})
        created = operation("create_task").sync(client=client, body=body)
        assert isinstance(created, models.Task)
        found = operation("get_task").sync(created.task_uuid, client=client)
        assert isinstance(found, models.Task)
        assert [s.name for s in found.steps] == ["charge"]
        listed = operation("list_tasks").sync(client=client, namespace="generated")
        assert [t.task_uuid for t in listed.tasks] == [created.task_uuid]


def test_errors_are_models(dev: DevServer, generated: ModuleType) -> None:
    dev.client.put_template(TEMPLATE)
    models = sys.modules["tasker_api.models"]
    with generated.Client(dev.url) as client:
        missing = operation("get_task").sync_detailed(uuid.UUID(int=7), client=client)
        body = models.CreateTask(namespace="generated", name="order", context={})
        invalid = operation("create_task").sync_detailed(client=client, body=body)
    assert (missing.status_code, invalid.status_code) == (404, 400)
    assert isinstance(missing.parsed, models.Error)
    assert isinstance(invalid.parsed, models.Error)
    assert (missing.parsed.error.code, invalid.parsed.error.code) == ("NOT_FOUND", "INVALID")
    assert "total" in invalid.parsed.error.message
