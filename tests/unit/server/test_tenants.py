"""The tenants file: what it says, what is wrong with it, and that no key is told of."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.http_server import settings
from suture.server.commands import serve
from suture.server.errors import SetupError
from suture.server.settings import Settings
from suture.server.tenants import Tenant, Tenants, parse_tenants, read_tenants, tenant_files

SECRET = "hunter2"


def at(folder: Path, text: str, **flags: object) -> Settings:
    file = folder / "tenants.toml"
    file.write_text(text, "utf-8")
    return settings(tenants=file, **flags)


def owners(tenants: Tenants) -> dict[str, str]:
    return {key: tenant.name for key, tenant in tenants.keys}


def test_a_file_says_whose_keys_are_whose_and_what_they_may_have(tmp_path: Path) -> None:
    (tmp_path / "red.keys").write_text(" r1 \n\nr2\n")
    tenants = read_tenants(
        at(
            tmp_path,
            '[tenants.blue]\nkeys = ["b1", "b2"]\nlimit = 24\nuser_limit = 6\ncache_salt = "s"\n'
            '[tenants.red]\nkeys = ["r3"]\nkey_file = "red.keys"\n',
        )
    )
    assert tenants.all == (Tenant("blue", 24, 6, "s"), Tenant("red"))
    assert owners(tenants) == {"b1": "blue", "b2": "blue", "r1": "red", "r2": "red", "r3": "red"}


def test_keys_of_the_api_key_file_are_the_default_tenants(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("k1\nk2\n")
    alone = read_tenants(settings(api_key_file=keys))
    assert (alone.all, owners(alone)) == (
        (Tenant("default"),),
        {"k1": "default", "k2": "default"},
    )
    beside = read_tenants(at(tmp_path, '[tenants.blue]\nkeys = ["b"]\n', api_key_file=keys))
    assert owners(beside) == {"b": "blue", "k1": "default", "k2": "default"}
    limited = read_tenants(at(tmp_path, "[tenants.default]\nlimit = 3\n", api_key_file=keys))
    assert limited.all == (Tenant("default", 3),)
    assert {tenant for _, tenant in limited.keys} == {Tenant("default", 3)}


def test_without_files_there_is_nobody() -> None:
    assert read_tenants(settings()) == Tenants()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no tenant in it"),
        ("[tenants]", "has no tenant in it"),
        ("tenants = 1", "tenants: must be tables, [tenants.NAME]"),
        ("[tenants]\nblue = 1", "tenants.blue: must be a table, [tenants.blue]"),
        ("[tenant.blue]", "unknown key 'tenant': only [tenants.NAME] is known"),
        ("[tenants.blue]\nkeys = [a]", "line 2"),
        ('[tenants.blue]\n\n[tenants.blue]\nkeys=["a"]', "line 3"),
        ("[tenants.blue]", "tenants.blue: has no key"),
        ("[tenants.blue]\nkeys = []", "tenants.blue: has no key"),
        ('[tenants.blue]\nkey = ["a"]', "tenants.blue: unknown key 'key' (did you mean keys?)"),
        ('[tenants.blue]\nkeys = ["a", ""]', "tenants.blue.keys[1]: must not be empty"),
        ('[tenants.blue]\nkeys = [" a"]', "tenants.blue.keys[0]: must not be empty, nor begin"),
        ('[tenants.blue]\nkeys = ["é"]', "tenants.blue.keys[0]: must be printable ASCII"),
        ("[tenants.blue]\nkeys = [1]", "tenants.blue.keys[0]: must be a string"),
        ('[tenants.blue]\nkeys = "a"', "tenants.blue.keys: must be an array"),
        ('[tenants.blue]\nkey_file = ""', "tenants.blue.key_file: must not be empty"),
        ('[tenants.blue]\nkey_file = "none"', "tenants.blue.key_file: "),
        ('[tenants.blue]\nkeys = ["a"]\nlimit = 0', "tenants.blue.limit: must be at least 1"),
        ('[tenants.blue]\nkeys = ["a"]\nlimit = true', "tenants.blue.limit: must be"),
        ('[tenants.blue]\nkeys = ["a"]\nlimit = 2.5', "tenants.blue.limit: must be"),
        ('[tenants.blue]\nkeys = ["a"]\nuser_limit = 99999', "tenants.blue.user_limit: must be at"),
        ('[tenants.blue]\nkeys = ["a"]\ncache_salt = ""', "tenants.blue.cache_salt: must not be"),
        ('[tenants.blue]\nkeys = ["a"]\ncache_salt = "ü"', "tenants.blue.cache_salt: must be"),
        ('[tenants."a b"]\nkeys = ["a"]', "tenants.'a b': a name has 1 to 64 letters"),
        ('[tenants.blue]\nkeys = ["a"]\n[tenants.red]\nkeys = ["b", "a"]', "two tenants have one"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SetupError) as raised:
        read_tenants(at(tmp_path, text))
    assert str(raised.value).startswith(f"--tenants: {tmp_path / 'tenants.toml'}")
    assert complaint in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file_and_one_that_is_no_text_are_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"--tenants: .*none\.toml: No such file"):
        read_tenants(settings(tenants=tmp_path / "none.toml"))
    file = tmp_path / "bytes.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(SetupError, match=r"--tenants: .*bytes\.toml is not UTF-8"):
        read_tenants(settings(tenants=file))


def test_two_tenants_with_one_key_are_named_with_both_places(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"other\n{SECRET}\n")
    text = f'[tenants.blue]\nkeys = ["a", "{SECRET}"]\n[tenants.red]\nkey_file = "keys"\n'
    with pytest.raises(SetupError) as raised:
        read_tenants(at(tmp_path, text))
    assert f"blue (tenants.blue.keys[1]) and red ({keys})" in str(raised.value)
    assert SECRET not in str(raised.value)
    with pytest.raises(SetupError, match=r"blue .* and default"):
        read_tenants(at(tmp_path, f'[tenants.blue]\nkeys = ["{SECRET}"]', api_key_file=keys))
    # The same one twice is one.
    twice = read_tenants(at(tmp_path, '[tenants.blue]\nkeys = ["a", "a"]\n'))
    assert owners(twice) == {"a": "blue"}


@pytest.mark.parametrize(
    "text",
    [
        f'[tenants.blue]\nkeys = ["{SECRET} "]',
        f'[tenants.blue]\nkeys = "{SECRET}"',
        f'[tenants.blue]\nkeys = ["{SECRET}é"]',
        f'[tenants.blue]\nkeys = ["{SECRET}]',
        f'[tenants.blue]\nkeys = ["a"]\ncache_salt = "{SECRET}é"',
        f'[tenants.blue]\nkeys = ["a"]\ncache_salt = {{a = "{SECRET}"}}',
        f'[tenants.blue]\nkeys = ["a"]\nlimit = "{SECRET}"',
    ],
)
def test_no_error_repeats_a_key_or_a_salt(tmp_path: Path, text: str) -> None:
    with pytest.raises(SetupError) as raised:
        read_tenants(at(tmp_path, text))
    assert SECRET not in str(raised.value)


def test_neither_keys_nor_salts_are_in_what_python_shows_of_them(tmp_path: Path) -> None:
    text = f'[tenants.blue]\nkeys = ["{SECRET}"]\ncache_salt = "{SECRET}"\n'
    assert SECRET not in repr(read_tenants(at(tmp_path, text)))
    assert SECRET not in repr(parse_tenants(text, "f"))


def test_the_example_of_the_document_is_tenants(tmp_path: Path) -> None:
    document = (Path(__file__).parents[3] / "docs" / "tenants.md").read_text()
    example = document.partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "red.keys").write_text("red-1\n")
    tenants = read_tenants(at(tmp_path, example))
    assert tenants.all == (Tenant("blue", 24, 6, "b5d1-4e0e-a7c2"), Tenant("red"))
    assert len(tenants.keys) == 3


@given(st.text())
def test_any_text_is_tenants_or_a_setup_error(text: str) -> None:
    try:
        parse_tenants(text, "f")
    except SetupError as error:
        assert str(error).startswith("f")


def test_files_of_tenants_that_others_may_read_are_named(tmp_path: Path) -> None:
    keys = tmp_path / "red.keys"
    keys.write_text("r\n")
    given = at(tmp_path, '[tenants.red]\nkey_file = "red.keys"\n')
    assert [*tenant_files(given)] == [given.tenants, keys]
    for file, is_open in ((keys, True), (given.tenants, False)):
        assert file is not None
        file.chmod(0o644 if is_open else 0o600)
    assert serve.open_secrets(given) == [keys]


def test_a_network_is_served_with_tenants(tmp_path: Path) -> None:
    serve.check_exposure(at(tmp_path, '[tenants.red]\nkeys = ["r"]\n', host="0.0.0.0"))
    with pytest.raises(SetupError, match="has no key"):
        serve.check_exposure(at(tmp_path, "[tenants.red]\n", host="127.0.0.1"))
