"""A completer as a pool: for those who serve one model that is always there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from suture.server.counters import Measured
from suture.server.errors import RequestError
from suture.server.models.names import plain_name
from suture.server.routes.completer import Completer, ModelInfo, Slot, State


class OneModel:
    """A pool of one model that is always there, and that model."""

    def __init__(self, completer: Completer) -> None:
        self._completer = completer

    @property
    def models(self) -> Sequence[OneModel]:
        return [self]

    @property
    def info(self) -> ModelInfo:
        return self._completer.model

    @property
    def n_bytes(self) -> int:
        return self.info.size_bytes or 0

    def named(self, name: str) -> OneModel | None:
        return self if plain_name(name) == plain_name(self.info.name) else None

    def state(self) -> State:
        return self._completer.state()

    @contextmanager
    def lease(self) -> Iterator[Completer]:
        yield self._completer

    def load(self) -> None:
        """Nothing: it is there."""

    def unload(self) -> None:
        raise RequestError(f"the model {self.info.name} cannot be unloaded")

    def measured(self) -> Measured:
        return self._completer.measured()

    def slots(self) -> list[Slot | None]:
        return self._completer.slots()
