from __future__ import annotations

from pathlib import Path

import pytest

from suture.server.errors import SetupError
from suture.server.settings import Settings, debug_requested, load_settings, read_api_keys


def config(tmp_path: Path, text: str) -> dict[str, str]:
    """An environment whose config file says `text`."""
    folder = tmp_path / "suture"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(text, "utf-8")
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    environ = config(tmp_path, 'port = 1\nctx = 512\nthreads = 1\nhealing = "off"')
    environ |= {"SUTURE_PORT": "2", "SUTURE_CTX": "1024"}
    settings = load_settings({"port": "3", "ctx": None}, environ=environ)
    assert (settings.port, settings.ctx, settings.threads) == (3, 1024, 1)
    assert (settings.healing, settings.queue) == ("off", 32)


def test_defaults_are_those_of_the_documentation() -> None:
    settings = load_settings(environ={})
    assert (settings.host, settings.port) == ("127.0.0.1", 8012)
    assert settings.cache == Path.home() / ".cache" / "suture"
    assert settings.config_dir == Path.home() / ".config" / "suture"
    assert settings.public() == {
        "healing": "exact",
        "give_back": "stable",
        "layout": "auto",
        "min_confidence": 0.0,
        "stream_interval": 1,
    }


def test_every_setting_can_come_from_flag_environment_and_file(tmp_path: Path) -> None:
    values = {
        "model": "m",
        "models": "/m.txt",
        "cache": "/c",
        "host": "::1",
        "port": "0",
        "ctx": "4096",
        "threads": "2",
        "gpu_layers": "7",
        "healing": "recursive",
        "give_back": "2",
        "layout": "spm",
        "min_confidence": "0.25",
        "tokenizer": "llama",
        "detokenizer": "window",
        "stream_interval": "3",
        "api_key_file": "/k",
        "tenants": "/n",
        "tls_cert": "/t",
        "tls_key": "/t",
        "allow_host": "a, b",
        "first_text_ms": "500",
        "parallel": "2",
        "queue": "5",
        "client_limit": "8",
        "encode_batch": "32",
        "encode_wait_ms": "5",
        "stall_s": "30",
        "also_serve": "n, /o.gguf",
        "memory_mb": "6000",
        "idle_minutes": "2.5",
        "drain_s": "9",
        "engine": "remote",
        "engine_url": "http://a, http://b",
        "engine_kind": "vllm",
        "engine_model": "coder",
        "engine_key_file": "/e",
        "engine_parallel": "64",
        "server": "http://x",
    }
    assert {*values, "config_dir"} == set(Settings.model_fields)
    from_flags = load_settings(values, environ={})
    from_environment = load_settings(
        environ={f"SUTURE_{key.upper()}": value for key, value in values.items()}
    )
    lines = "\n".join(f'{key} = "{value}"' for key, value in values.items())
    from_file = load_settings(environ=config(tmp_path, lines))
    assert from_flags == from_environment
    assert from_flags == from_file.model_copy(update={"config_dir": from_flags.config_dir})
    assert from_flags.allow_host == ("a", "b")
    assert (from_flags.gpu_layers, from_flags.give_back) == (7, 2)
    assert from_flags.also_serve == ("n", "/o.gguf")
    assert (from_flags.memory_mb, from_flags.idle_minutes) == (6000, 2.5)
    assert from_flags.min_confidence == 0.25


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("prot = 1", "unknown key 'prot' (did you mean port?)"),
        ("port = 99999", "port: must be at most 65535"),
        ("port =", "Invalid value"),
        ("give_back = 9", 'give_back: must be "stable" or a number of tokens from 1 to 8'),
        ("give_back = true", "give_back: must be"),
        ("min_confidence = 1.5", "min_confidence: must be at most 1"),
        ('min_confidence = "sure"', "min_confidence: must be a number"),
        ('layout = "middle"', "layout: must be 'auto', 'psm', 'spm' or 'anchor'"),
    ],
)
def test_a_bad_file_is_named_with_its_key(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SetupError) as raised:
        load_settings(environ=config(tmp_path, text))
    assert str(tmp_path / "suture" / "config.toml") in str(raised.value)
    assert complaint in str(raised.value)


def test_a_bad_variable_and_a_bad_flag_are_named() -> None:
    with pytest.raises(SetupError, match=r"^SUTURE_QUEUE: must be"):
        load_settings(environ={"SUTURE_QUEUE": "many"})
    with pytest.raises(SetupError, match=r"^SUTURE_PROT: unknown .*SUTURE_PORT"):
        load_settings(environ={"SUTURE_PROT": "1"})
    with pytest.raises(SetupError, match=r"^--gpu-layers: must be"):
        load_settings({"gpu_layers": "-2"}, environ={})


@pytest.mark.parametrize(
    "name", ["http://x/", "x/", "x:8012", "[::1]", "*", "a b", "", "-x", "é", "a\n", "//x", "a,b"]
)
def test_a_host_to_answer_to_is_a_name_alone(name: str) -> None:
    with pytest.raises(SetupError, match=r"^--allow-host: must be a host's name") as raised:
        load_settings({"allow_host": ["box", name]}, environ={})
    assert "\n" not in str(raised.value)
    for right in ("box", "Box.lan", "a_b", "127.0.0.1", "::1", "xn--bcher-kva.example", "box."):
        assert load_settings({"allow_host": [right]}, environ={}).allow_host == (right,)


def test_a_config_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(SetupError, match=r"missing\.toml: No such file"):
        load_settings(config=missing, environ={})
    with pytest.raises(SetupError, match=r"missing\.toml"):
        load_settings(environ={"SUTURE_CONFIG": str(missing)})


def test_relative_xdg_folders_are_ignored_and_empty_variables_are_unset() -> None:
    settings = load_settings(environ={"XDG_CACHE_HOME": "here", "SUTURE_PORT": ""})
    assert settings.cache == Path.home() / ".cache" / "suture"
    assert settings.port == 8012
    assert load_settings(environ={"XDG_CACHE_HOME": "/x"}).cache == Path("/x/suture")


def test_debug_is_asked_for_by_a_variable() -> None:
    assert debug_requested({"SUTURE_DEBUG": "1"})
    assert not debug_requested({"SUTURE_DEBUG": "0"})
    assert not debug_requested({})


def test_api_keys_are_read_one_a_line(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    settings = load_settings({"api_key_file": keys}, environ={})
    with pytest.raises(SetupError, match="No such file"):
        read_api_keys(settings)
    keys.write_text(" a \n\nb\r\n")
    assert read_api_keys(settings) == ("a", "b")
    keys.write_text("\n")
    with pytest.raises(SetupError, match="no key"):
        read_api_keys(settings)
    keys.write_text("ключ\n")
    with pytest.raises(SetupError, match="ASCII"):
        read_api_keys(settings)
    assert read_api_keys(load_settings(environ={})) == ()


@pytest.mark.parametrize("n_tokens", ["1", "255", "-1"])
def test_a_context_that_llama_cpp_would_round_up_is_refused(n_tokens: str) -> None:
    with pytest.raises(SetupError, match="ctx"):
        load_settings({"ctx": n_tokens}, environ={})
