"""What a scenario file may say, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from editors.scenario import CARET, WrongScenario, load_scenarios, place_of, read_scenarios

HEAD = '[[scenario]]\nname = "a name"\n'


def test_a_file_is_read_with_its_own_options_over_those_of_all() -> None:
    text = f"""
        [options]
        prefetch = false
        maxTokens = 8
        [[scenario]]
        name = "One, that's first"
        text = "x = {CARET}"
        writes = "x = 1"
        options = {{ maxTokens = 9 }}
        steps = [{{ type = "1", stays = true, shows = "x = 1" }}, {{ idle = true }}]
    """
    [scenario] = read_scenarios(text)
    assert scenario.options == {"prefetch": False, "maxTokens": 9}
    assert scenario.slug == "One-thats-first" and scenario.file_name == "One-thats-first.py"
    assert [step.verb for step in scenario.steps] == ["type", None]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x =", "Invalid value"),
        ("[[scenario]]\nsteps = []", "scenario 1, name: Field required"),
        (HEAD + "steps = []", "'a name': expected either writes or says"),
        (HEAD + 'says = ""\nwrites = ""\nsteps = []', "expected either writes or says"),
        (HEAD + 'says = ""\ntext = "a"\nsteps = []', "text: expected one ‸, found 0"),
        (HEAD + 'says = ""\nsteps = [{}]', "'a name', step 1: nothing is done or said"),
        (
            HEAD + 'says = ""\nsteps = [{idle = true}, {type = "a", press = "Tab"}]',
            "step 2: two verbs: type and press",
        ),
        (HEAD + 'says = ""\nsteps = [{press = "F1"}]', "step 1, press: Input should be"),
        (HEAD + 'says = ""\nsteps = [{typ = "a"}]', "step 1, typ: Extra inputs"),
        (HEAD + 'says = ""\nsteps = [{type = "a", stays = true}]', "what stays? expected shows"),
        (HEAD + 'says = ""\nsteps = [{paste = "a", ms_a_key = 1}]', "expected type"),
        (HEAD + 'says = ""\nsteps = [{server = "off"}]', "step 1, server: Input should be"),
        (HEAD + 'says = ""\nsteps = [{requests = "1"}]', "step 1, requests: Input should be"),
        (HEAD + 'says = ""\nsteps = [{text = "‸‸"}]', "text: more than one ‸"),
        (HEAD + 'says = ""\nsteps = [{open = {file = "b", text = ""}}]', "text: expected one ‸"),
        (HEAD + 'says = ""\nonly = ["vim"]\nsteps = []', "only.0: Input should be"),
        (HEAD + 'says = ""\nonly = ["neovim"]\nsteps = []', "expected because"),
        ((HEAD + 'says = ""\nsteps = []\n') * 2, "two scenarios are called a-name"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(WrongScenario) as raised:
        read_scenarios(text)
    assert said in str(raised.value)


def test_a_place_is_the_line_and_the_code_points_in_it() -> None:
    assert place_of("a\r\nb😀‸c") == ("a\r\nb😀c", 1, 2)
    assert place_of("‸") == ("", 0, 0)


def test_the_page_on_scenarios_has_all_of_them_in_their_order() -> None:
    scenarios = load_scenarios(Path(__file__).with_name("scenarios.toml"))
    page = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text("utf-8")
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    assert rows[0] == "scenario"
    assert rows[2:] == [scenario.slug.replace("-", " ") for scenario in scenarios]
