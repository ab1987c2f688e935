"""What `Completions` stands on: a model that makes generations of plans, and what runs them.

For a model on this machine these are `LoadedModel` and the engine's `Scheduler`; for one that
another's server runs, those of `engine/remote/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from suture.healing import Posterior, Vocabulary
from suture.server.codec import Codec
from suture.server.counters import Counters
from suture.server.decoding.drafts import DraftIndex
from suture.server.decoding.text_stream import TextStream
from suture.server.engine.job import Job, Work
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import FimFamily, LayoutDefaults
from suture.server.prompt.plan import PromptPlan
from suture.server.request import CompletionRequest, FinishReason

W = TypeVar("W", bound=Work)
W_co = TypeVar("W_co", bound=Work, covariant=True)


class Model(Protocol[W_co]):
    """What planning has to know of a model, and what its generations are.

    `defaults` are what "auto" stands for if the model was calibrated, None: its family's.
    """

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def family(self) -> FimFamily | None: ...

    @property
    def budget(self) -> PromptBudget: ...

    @property
    def codec(self) -> Codec: ...

    @property
    def defaults(self) -> LayoutDefaults | None: ...

    def check(self, request: CompletionRequest) -> None:
        """Raise `InvalidRequest` for what its engine cannot do: a grammar that is none, for one."""
        ...

    def fit(self, plan: PromptPlan) -> PromptPlan:
        """The same prompt, cut where its engine can heal it."""
        ...

    def generation(
        self,
        request: CompletionRequest,
        plan: PromptPlan,
        text: TextStream,
        known: Callable[[], DraftIndex] | None = None,
    ) -> W_co:
        """A generation of a checked request; `known` makes what drafts are looked up in.

        That takes its time for a long prompt: to be called at once, and only where it is used.
        """
        ...

    def observed(self, observe: Callable[[Posterior], None]) -> Model[W_co]:
        """The same, telling the posterior over the covers of what it heals, where there is one."""
        ...


class Runner(Protocol[W]):
    """What runs generations side by side. Any thread may call it."""

    counters: Counters

    @property
    def capacity(self) -> int:
        """The most jobs that may run and wait."""
        ...

    def check_room(self, n_coming: int = 0) -> None:
        """Raise what `submit` would raise after `n_coming` others."""
        ...

    def submit(self, *jobs: Job[W]) -> None:
        """Have jobs run, each when it can; all are taken or none."""
        ...

    def submit_spare(self, job: Job[W]) -> None:
        """Have a job run if nothing else is to be done; whatever is submitted then ends it."""
        ...

    def cancel(self, job: Job[W], reason: FinishReason) -> None:
        """End a job early, wherever it is; nothing happens to one that has ended."""
        ...
