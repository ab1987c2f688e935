from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support.http_server import settings
from suture.server.doctor.editors import editors
from suture.server.doctor.files import files, proxy
from suture.server.settings import proxy_of_loopback

TLS = Path(__file__).parents[3] / "support" / "tls"


def test_keys_that_others_can_read_are_a_problem_and_the_fix_mends_it(tmp_path: Path) -> None:
    keys = tmp_path / "the keys"
    keys.write_text("one\ntwo\n")
    for mode, kind in ((0o644, "problem"), (0o640, "note"), (0o600, "ok")):
        keys.chmod(mode)
        [found] = files(settings(api_key_file=keys))
        assert (found.kind, "API keys: 2 in" in found.text) == (kind, True)
        if found.fix:
            subprocess.run(found.fix, shell=True, check=True)
            assert keys.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the fix asks openssl for a key")
def test_a_key_file_that_is_missing_is_made_by_the_fix(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    [found] = files(settings(api_key_file=keys))
    assert found.kind == "problem"
    subprocess.run(found.fix, shell=True, check=True)
    [found] = files(settings(api_key_file=keys))
    assert found.kind == "ok" and "API keys: 1 in" in found.text


def test_tenants_are_read_and_their_files_are_looked_at(tmp_path: Path) -> None:
    tenants, keys = tmp_path / "tenants.toml", tmp_path / "blue.keys"
    tenants.write_text('[tenants.blue]\nkey_file = "blue.keys"\n')
    [found] = files(settings(tenants=tenants))
    assert found.kind == "problem" and "tenants.blue.key_file" in found.text
    keys.write_text("one\ntwo\n")
    tenants.chmod(0o600)
    keys.chmod(0o644)
    listed, own = files(settings(tenants=tenants, host="0.0.0.0"))
    assert listed.kind == "ok" and "tenants: 1 with 2 keys in" in listed.text
    assert own.kind == "problem" and str(keys) in own.fix


def test_a_host_that_serve_would_refuse_is_a_problem(tmp_path: Path) -> None:
    [found] = files(settings(host="0.0.0.0"))
    assert found.kind == "problem" and "open to the network" in found.text
    assert "--api-key-file" in found.fix
    assert not [*files(settings(host="0.0.0.0", allow_host=("box",)))]
    assert not [*files(settings())]


def copied(folder: Path) -> tuple[Path, Path]:
    cert, key = folder / "cert.pem", folder / "key.pem"
    shutil.copy(TLS / "cert.pem", cert)
    shutil.copy(TLS / "key.pem", key)
    key.chmod(0o600)
    return cert, key


def test_a_certificate_is_tried_with_its_key(tmp_path: Path) -> None:
    cert, key = copied(tmp_path)
    assert [found.kind for found in files(settings(tls_cert=cert, tls_key=key))] == ["ok"]
    key.chmod(0o644)
    [found] = files(settings(tls_cert=cert, tls_key=key))
    assert found.kind == "problem" and "every user of this machine can read" in found.text
    [found] = files(settings(tls_cert=cert, tls_key=cert))
    assert found.kind == "problem" and "--tls-cert" in found.text
    # A client trusts a server with it.
    [found] = files(settings(tls_cert=cert))
    assert found.kind == "ok"
    [found] = files(settings(tls_key=key))
    assert found.kind == "problem"
    assert list(files(settings())) == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl tells when it ends")
def test_a_certificate_that_ends_soon_is_told_and_the_fix_makes_another(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x"
    paths = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*made.split(), "-days", "3", *paths], check=True, capture_output=True)
    _, found = files(settings(tls_cert=cert, tls_key=key))
    assert found.kind == "note" and "the certificate ends: " in found.text
    subprocess.run(found.fix, shell=True, check=True, capture_output=True)
    assert [found.kind for found in files(settings(tls_cert=cert, tls_key=key))] == ["ok"]


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({}, None),
        ({"http_proxy": "http://proxy:3128"}, "http_proxy"),
        ({"HTTP_PROXY": "http://proxy:3128"}, None),
        ({"https_proxy": "http://proxy:3128"}, None),
        ({"ALL_PROXY": "socks5://proxy", "no_proxy": "example.org"}, "ALL_PROXY"),
        ({"all_proxy": "http://p", "NO_PROXY": "localhost, 127.0.0.1"}, None),
        ({"http_proxy": "http://p", "no_proxy": "*"}, None),
        ({"http_proxy": ""}, None),
    ],
)
def test_a_proxy_that_swallows_local_requests_is_found(
    environ: dict[str, str], variable: str | None
) -> None:
    assert proxy_of_loopback(environ) == variable


def test_the_fix_for_a_proxy_keeps_local_requests_local(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    [found] = proxy()
    assert found.kind == "note"
    told = subprocess.run(f"{found.fix}; env", shell=True, capture_output=True, text=True).stdout
    assert proxy_of_loopback(dict(line.split("=", 1) for line in told.splitlines())) is None


def test_editors_are_told_with_their_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, home = tmp_path / "bin", tmp_path / "home"
    commands.mkdir()
    monkeypatch.setenv("PATH", str(commands))
    assert list(editors(home)) == []
    for name in ("code", "nvim", "hx"):
        (commands / name).write_text("#!/bin/sh\n")
        (commands / name).chmod(0o755)
    code, nvim, helix = editors(home)
    assert code.kind == nvim.kind == "note" and helix.kind == "ok"
    assert code.fix.endswith("code --install-extension editor-clients/vscode/suture.vsix")
    # It is to be found where the line puts it.
    plugin = tmp_path / "editor-clients/nvim"
    plugin.mkdir(parents=True)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    subprocess.run(nvim.fix, shell=True, check=True, cwd=tmp_path, env=environment)
    assert (home / ".local/share/nvim/site/pack/suture/start/suture").resolve() == plugin
    _, nvim, _ = editors(home)
    assert (nvim.kind, nvim.text) == ("ok", "Neovim: suture")
    (home / ".vscode/extensions/suture.suture-0.1.0").mkdir(parents=True)
    (home / ".vscode/extensions/Continue.continue-1.2.3-linux-x64").mkdir(parents=True)
    (home / ".local/share/nvim/lazy/llama.vim").mkdir(parents=True)
    code, nvim, _ = editors(home)
    assert code.text == "VS Code: continue.continue, suture.suture"
    assert nvim.text == "Neovim: llama.vim, suture"
