"""What the places are at where requests run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suture.server.engine.job import Job
from suture.server.routes.completer import Slot


def slots_of(running: Sequence[Job[Any]], n_places: int) -> list[Slot | None]:
    """An entry for each place, None where nothing runs."""
    slots: list[Slot | None] = [None] * n_places
    for job in running:
        slots[job.place] = _slot(job)
    return slots


def _slot(job: Job[Any]) -> Slot:
    generation = job.generation
    return Slot(
        number=job.number,
        n_prompt_tokens=len(generation.prompt_ids),
        n_generated=generation.n_generated,
        max_tokens=generation.max_tokens,
        sampling=generation.request.sampling,
        ignore_eos=generation.request.ignore_eos,
    )
