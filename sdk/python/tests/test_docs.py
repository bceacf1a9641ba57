"""The examples of the README and the commands of the tutorial run as they are printed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest

from tasker import Worker
from tasker.testing import DevServer, Return

from .conftest import ROOT

PACKAGE = Path(__file__).resolve().parents[1]
TEMPLATE = """
namespace_name: shop
name: fulfil_order
version: 1.0.0
steps:
  - name: charge
    handler: {callable: charge_card}
    retry: {max_attempts: 2, backoff_base_ms: 600000, max_backoff_ms: 600000}
"""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_readme_reaches_the_first_business_line_in_five_lines() -> None:
    first = blocks(PACKAGE / "README.md", "python")[0]
    head, found, _ = first.partition("    return {")
    assert found
    assert len([line for line in head.splitlines() if line]) <= 5


def test_the_first_worker_of_the_readme_runs(dev: DevServer, tmp_path: Path) -> None:
    program = tmp_path / "worker.py"
    program.write_text(blocks(PACKAGE / "README.md", "python")[0])
    dev.client.put_template(TEMPLATE)
    env = {**os.environ, "TASKER_URL": dev.url, "PYTHONPATH": str(PACKAGE / "src")}
    with subprocess.Popen([sys.executable, str(program)], env=env) as worker:
        task = dev.client.wait(dev.client.create_task("shop", "fulfil_order", {"total": 5}))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
    assert task.steps
    assert task.steps[0].results["result"] == {"charged": 5}


def test_the_worker_of_the_root_readme_runs(dev: DevServer, tmp_path: Path) -> None:
    readme = ROOT / "README.md"
    (code,) = blocks(readme, "python")
    assert len(code.splitlines()) < 10
    program = tmp_path / "worker.py"
    program.write_text(code)
    name = "order_of_the_readme"  # other tests have another template fulfil_order
    dev.client.put_template(blocks(readme, "yaml")[0].replace("fulfil_order", name))
    env = {**os.environ, "TASKER_URL": dev.url, "PYTHONPATH": str(PACKAGE / "src")}
    others = {"reserve_stock": [Return("shelf 7")], "ship_order": [Return({"parcel": "P-7"})]}
    with dev.running(Worker("shop"), others), subprocess.Popen([sys.executable, str(program)], env=env) as worker:
        task = dev.client.wait(dev.client.create_task("shop", name, {"order": 7, "total": 1200}))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
    assert task.status == "complete"
    results = {step.name: step.results["result"] for step in task.steps or []}
    assert results["charge"] == {"charge_id": "ch_7", "amount": 1200}


def test_the_other_examples_of_the_readme_run(dev: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, handlers, client, tests, fastapi = blocks(PACKAGE / "README.md", "python")
    dev.client.put_template(TEMPLATE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TASKER_URL", dev.url)
    module = ModuleType("readme")
    monkeypatch.setitem(sys.modules, "readme", module)
    names = vars(module)
    names["running_server"] = nullcontext(dev)  # a new one takes long to start
    for code in (handlers, fastapi, tests.replace('DevServer(templates="templates")', "running_server")):
        exec(code, names)
    names["test_one_handler"]()
    names["test_a_workflow"]()
    with dev.running(names["worker"]):
        exec(client, names)


class Tutorial:
    """Runs the commands of the tutorial in a directory that looks like a checkout."""

    def __init__(self, directory: Path, binary: str) -> None:
        self.directory, self.binary = directory, binary
        self.text = (ROOT / "docs/tutorials/python.md").read_text()
        self.commands = re.findall(r"^    (\S.*)$", re.sub(r"```.*?```", "", self.text, flags=re.DOTALL), re.MULTILINE)
        (directory / "sdk").symlink_to(ROOT / "sdk")
        (directory / "first/templates").mkdir(parents=True)
        directory.chmod(0o755)  # PostgreSQL may run as another user
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TASKER_")},
            "PYTHONPATH": sysconfig.get_paths()["purelib"],  # the dependencies, without a download
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_NO_INDEX": "1",
        }

    def files(self) -> None:
        """Creates the files that the tutorial prints."""
        names = re.findall(r"Create (?:the file )?`(first/[\w./]+)`", self.text)
        bodies = re.findall(r"```(?:python|yaml)\n(.*?)```", self.text, re.DOTALL)
        assert len(names) == len(bodies) == 5
        for name, body in zip(names, bodies, strict=True):
            (self.directory / name).write_text(body)

    def next(self, begin: str) -> str:
        """Takes the next command, which begins like this."""
        command = self.commands.pop(0)
        assert command.startswith(begin), command
        return command.replace("go run ./cmd/tasker dev", f"exec {self.binary} dev --listen 127.0.0.1:0")

    def run(self, begin: str) -> str:
        command = self.next(begin)
        ended = subprocess.run(
            command,
            shell=True,
            cwd=self.directory,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    def start(self, begin: str, log: str) -> subprocess.Popen[bytes]:
        command = self.next(begin)
        with (self.directory / log).open("wb") as output:
            return subprocess.Popen(
                command if command.startswith("exec") else f"exec env {command}",
                shell=True,
                cwd=self.directory,
                env=self.env,
                stdout=output,
                stderr=subprocess.STDOUT,
            )


def stop(program: subprocess.Popen[bytes]) -> int:
    program.send_signal(signal.SIGINT)
    return program.wait(30)


@pytest.fixture
def tutorial(binary: str) -> Iterator[Tutorial]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        yield Tutorial(Path(directory), binary)


def test_the_tutorial_runs(tutorial: Tutorial) -> None:
    tutorial.run("python3 -m venv first/venv")
    tutorial.run("first/venv/bin/pip install ./sdk/python")
    tutorial.files()
    server = tutorial.start("go run ./cmd/tasker dev", "server.log")
    programs = [server]
    try:
        log = tutorial.directory / "server.log"
        wait_for(lambda: server.poll() is not None or "tasker is ready at" in log.read_text())
        assert server.poll() is None, log.read_text()
        tutorial.env["TASKER_URL"] = log.read_text().partition("tasker is ready at ")[2].split()[0]
        programs.append(tutorial.start("first/venv/bin/python first/worker.py", "worker.log"))
        said = tutorial.run("first/venv/bin/python first/submit.py")
        assert " error\n" in said
        assert "payment gateway does not answer" in said
        assert stop(programs.pop()) == 0
        programs.append(tutorial.start("GATEWAY=up first/venv/bin/python first/worker.py", "worker.log"))
        assert tutorial.run("first/venv/bin/python first/repair.py").endswith(" complete\n")
        assert tutorial.next("first/venv/bin/pip install pytest")  # in PYTHONPATH already
        assert "2 passed" in tutorial.run("first/venv/bin/python -m pytest first")
        assert tutorial.commands == []
    finally:
        assert [stop(p) for p in reversed(programs)] == [0] * len(programs)
