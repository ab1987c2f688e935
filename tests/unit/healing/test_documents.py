"""What the documents show is what the code does."""

from pathlib import Path

import pytest

from support.documents import run_blocks

pytestmark = pytest.mark.model


def test_the_examples_of_the_healing_page(coder_model: Path) -> None:
    assert run_blocks("healing.md", {"model": coder_model}) > 8


def test_the_examples_of_the_detokenizing_page(small_model: Path) -> None:
    assert run_blocks("detokenizing.md", {"model": small_model}) > 20
