"""The real minuet-ai.nvim, unmodified, in a real Neovim against our server.

Runs where MINUET_DIR names a checkout of milanglacier/minuet-ai.nvim and there are Neovim and curl;
it says so where it does not. What it sends is compared with its recording, as llama.vim's is.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support.client_requests import recorded_body
from support.fake_completer import FakeCompleter, says
from support.http_server import serving_app, settings
from support.neovim import HAS_NEOVIM, editing
from support.recorded import Recorded
from suture.server.app import create_app

PLUGIN = os.environ.get("MINUET_DIR", "")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not (PLUGIN and HAS_NEOVIM), reason="MINUET_DIR is not set, or no nvim, pynvim or curl"
    ),
]

TEXT = "def area(width, height):\n    return \n\n\nprint(area(2, 3))\n"
_MARKED = """
prompt = function(before, after, _)
  return '<|fim_prefix|>' .. before .. '<|fim_suffix|>' .. after .. '<|fim_middle|>'
end, suffix = false,
"""
SETUPS = {
    "prompt and suffix": (
        "openai_fim_compatible",
        "end_point = '{url}/v1/completions', name = 'Suture', model = 'suture', "
        "optional = { max_tokens = 56, top_p = 0.9 },",
    ),
    "a hole in the prompt": (
        "openai_fim_compatible",
        "end_point = '{url}/v1/completions', name = 'Suture', model = 'suture', "
        "optional = { max_tokens = 56, top_p = 0.9 }, template = {" + _MARKED + "},",
    ),
    "as Mistral": (
        "codestral",
        "end_point = '{url}/v1/fim/completions', optional = { max_tokens = 56 },",
    ),
}


@pytest.mark.parametrize("name", SETUPS)
def test_the_answer_is_shown_and_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # It wants the name of a variable with a key, whatever is in it.
    monkeypatch.setenv("TERM", "xterm")
    provider, options = SETUPS[name]
    completer = FakeCompleter(says("width * ", "height"))
    (tmp_path / "shapes.py").write_text(TEXT)
    at = settings()
    served = Recorded(create_app(completer, at))
    with (
        serving_app(served, at) as url,
        editing(tmp_path, PLUGIN, "minuet.virtualtext", []) as editor,
    ):
        options = options.replace("{url}", url)
        editor.nvim.exec_lua(
            f"require('minuet').setup {{ provider = '{provider}', n_completions = 1, "
            f"provider_options = {{ {provider} = {{ api_key = 'TERM', {options} }} }} }}"
        )
        editor.nvim.command("edit shapes.py")
        editor.type("jA")
        editor.nvim.exec_lua("require('minuet.virtualtext').action.next()")
        editor.until(lambda: editor.ghost["shown"] == "width * height")
        editor.nvim.exec_lua("require('minuet.virtualtext').action.accept()")
        editor.until(lambda: editor.lines[1] == "    return width * height")
    [request] = completer.requests
    assert request.prefix.endswith("def area(width, height):\n    return ")
    assert (request.suffix, request.infill) == ("\n\n\nprint(area(2, 3))", True)
    assert served.bodies[0] == recorded_body("minuet", name), json.dumps(served.bodies[0])
