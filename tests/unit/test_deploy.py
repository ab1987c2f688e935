"""What docs/deploy says is true of this checkout: flags, variables, files."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from suture.server.cli import VERBS, build_parser
from suture.server.commands.flags import settings_of
from suture.server.commands.serve import check_exposure
from suture.server.errors import SetupError
from suture.server.settings import load_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*/*"))
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]
DOCKERFILES = ["Dockerfile", "Dockerfile.cuda"]
LEAST_SYSTEMD = 250


def parsed(arguments: list[str]) -> Any:
    """What our own parser makes of a command line."""
    verbs = {verb: importlib.import_module(module) for verb, module in VERBS.items()}
    return build_parser(verbs).parse_args(arguments)


def named(unit: Path) -> str:
    return f"{unit.parent.name}/{unit.name}"


def directives(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)


@pytest.mark.parametrize("unit", SERVICES, ids=named)
def test_a_service_starts_a_command_line_that_we_understand(
    unit: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    [line] = directives(unit, "ExecStart")
    program, *arguments = shlex.split(line)
    assert program.endswith("/bin/suture")
    config = tmp_path / "config.toml"
    config.touch()
    arguments = [str(config) if word.startswith("/etc/") else word for word in arguments]
    for assignment in directives(unit, "Environment"):
        monkeypatch.setenv(*assignment.split("=", 1))
    settings = settings_of(parsed(arguments))
    check_exposure(settings)
    [grace] = directives(unit, "TimeoutStopSec")
    assert settings.drain_s + 6 < int(grace)
    assert directives(unit, "Type") == ["notify"]
    assert directives(unit, "RestartPreventExitStatus") == ["2"]


@pytest.mark.parametrize("unit", UNITS, ids=named)
def test_a_socket_is_that_of_the_settings(unit: Path) -> None:
    settings = load_settings(environ={})
    for address in directives(unit, "ListenStream"):
        assert address == f"{settings.host}:{settings.port}"


def systemd() -> int:
    """The version of systemd that is installed; 0: none."""
    if shutil.which("systemd-analyze") is None:
        return 0
    told = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True).stdout
    return int(told.split()[1])


def installed(unit: Path, folder: Path) -> Path:
    """A copy of a unit and its socket, whose command is there."""
    for file in unit.parent.iterdir():
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", file.read_text(), flags=re.M)
        (folder / file.name).write_text(text)
    return folder / unit.name


@pytest.mark.skipif(systemd() < LEAST_SYSTEMD, reason="it is systemd that knows its directives")
@pytest.mark.parametrize("unit", UNITS, ids=named)
def test_systemd_has_no_complaint_about_a_unit(unit: Path, tmp_path: Path) -> None:
    scope = ["--user"] if unit.parent.name == "user" else ["--system"]
    verify = ["systemd-analyze", *scope, "verify", str(installed(unit, tmp_path))]
    environ = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)}
    told = subprocess.run(verify, capture_output=True, text=True, env=environ)
    # What else is installed on this machine is none of ours.
    ours = [line for line in told.stderr.splitlines() if "suture" in line]
    assert (told.returncode, ours) == (0, [])


@pytest.mark.skipif(systemd() < LEAST_SYSTEMD, reason="systemd rates how exposed a service is")
def test_the_system_service_is_hardly_exposed(tmp_path: Path) -> None:
    unit = installed(DEPLOY / "systemd" / "system" / "suture.service", tmp_path)
    rate = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)]
    told = subprocess.run(rate, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout[-200:]


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, each in one line."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / dockerfile).read_text(), flags=re.M)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.split()[0], line.split(None, 1)[1]) for line in lines if line]


def last_stage(dockerfile: str) -> list[tuple[str, str]]:
    found = instructions(dockerfile)
    starts = [index for index, (name, _) in enumerate(found) if name == "FROM"]
    return found[starts[-1] :]


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_an_image_is_built_of_files_that_are_there_and_not_left_out(dockerfile: str) -> None:
    ignored = (DEPLOY / f"{dockerfile}.dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    sources = [
        source.rstrip("/")
        for name, told in instructions(dockerfile)
        if name == "COPY" and not told.startswith("--from")
        for source in told.split()[:-1]
    ]
    assert set(sources) == kept
    assert all((ROOT / source).exists() for source in sources)


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_an_image_serves_with_what_we_understand_and_not_a_network_by_itself(
    dockerfile: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage = dict(last_stage(dockerfile))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name, value in re.findall(r"(SUTURE_\w+)=(\S+)", stage["ENV"]):
        monkeypatch.setenv(name, value)
    assert stage["ENTRYPOINT"] == '["suture"]' and stage["USER"] == "10001"
    settings = settings_of(parsed(re.findall(r'"(\w+)"', stage["CMD"])))
    assert str(settings.cache) == stage["VOLUME"] and str(settings.port) == stage["EXPOSE"]
    with pytest.raises(SetupError, match="open to the network"):
        check_exposure(settings)
    assert f"http://127.0.0.1:{settings.port}/health" in stage["HEALTHCHECK"]


def test_the_images_differ_in_what_they_compute_with_only() -> None:
    cpu, cuda = (
        [told for told in last_stage(name) if told[0] not in ("FROM", "RUN")]
        for name in DOCKERFILES
    )
    assert cpu == cuda


def test_compose_gives_what_we_understand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["suture"]
    build = service["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).exists()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name, value in service["environment"].items():
        monkeypatch.setenv(name, value)
    settings = settings_of(parsed(service["command"]))
    assert str(settings.api_key_file).startswith("/run/secrets/")
    assert settings.drain_s + 6 < int(service["stop_grace_period"].removesuffix("s"))
    assert service["ports"] == [f"127.0.0.1:{settings.port}:{settings.port}"]


def test_keys_that_the_page_has_made_in_a_checkout_are_not_committed() -> None:
    [made] = re.findall(r"> (docs/deploy/\S+)\)", (DEPLOY / "README.md").read_text())
    ignored = subprocess.run(["git", "check-ignore", made], cwd=ROOT, capture_output=True)
    assert ignored.returncode == 0, ignored.stderr


def test_links_of_the_page_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (DEPLOY / "README.md").read_text()):
        assert (DEPLOY / target).exists(), target
