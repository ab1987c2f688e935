"""The page at `/` and `/explain`: who may load it, and what it is sent with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.fake_completer import FakeCompleter
from support.http_server import Json, client, serving
from suture.server.routes.pages import NONCE, PAGE_PATHS, built

BODY: Json = {"input_prefix": "a", "input_suffix": ""}
PAGES = ("/", "/explain")


def test_the_page_needs_no_key_and_what_it_shows_does(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    with serving(FakeCompleter(), api_key_file=keys) as url, client(url) as http:
        for path in PAGE_PATHS:
            assert http.get(path).status_code == 200, path
        asked = [http.post(path, json=BODY) for path in ("/infill", "/v1/explain", "/v1/events")]
        assert [one.status_code for one in (http.get("/v1/status"), *asked)] == [401] * 4
        key = {"Authorization": "Bearer secret"}
        assert http.get("/v1/status", headers=key).status_code == 200


@pytest.mark.parametrize("path", sorted({"/docs", *PAGE_PATHS}))
def test_pages_are_of_this_host_and_only_read(path: str) -> None:
    with serving(FakeCompleter()) as url, client(url) as http:
        assert http.post(path).status_code == 405
        assert http.get(path, headers={"Host": "evil.example"}).status_code == 403
        assert http.get(path, headers={"Origin": "https://evil.example"}).status_code == 403
        headers = http.get(path).headers
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cross-origin-opener-policy"] == "same-origin"


@pytest.mark.parametrize("path", PAGES)
def test_the_page_is_sent_with_a_policy_that_lets_in_nothing_else(path: str) -> None:
    with serving(FakeCompleter()) as url, client(url) as http:
        responses = [http.get(path) for _ in range(2)]
    nonces: set[str] = set()
    for response in responses:
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        policy = response.headers["content-security-policy"]
        directives = dict(part.split(maxsplit=1) for part in policy.split(";"))
        found = re.fullmatch(r"'self' 'nonce-([\w-]{20,})'", directives.pop("style-src"))
        assert found is not None
        nonces.add(found[1])
        assert response.text == built("page.html").replace(NONCE, found[1])
        assert response.headers["cache-control"] == "no-store"
        assert directives == {
            **dict.fromkeys(("script-src", "connect-src", "img-src"), "'self'"),
            **dict.fromkeys(("default-src", "base-uri", "form-action"), "'none'"),
            "frame-ancestors": "'none'",
            "require-trusted-types-for": "'script'",
            "trusted-types": "'none'",
        }
    assert len(nonces) == 2


def test_what_the_page_loads_is_what_there_is() -> None:
    loaded = set(re.findall(r'(?:src|href)="(pages/[^"]+)"', built("page.html")))
    assert {f"/{path}" for path in loaded} == PAGE_PATHS - set(PAGES)
