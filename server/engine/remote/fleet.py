"""The backends that one model is served by: which one is asked, and what if it fails.

  A1  A request goes to the first backend in its key's order (`affinity.py`) that is healthy, was
      not found busy, and is not loaded: with more than `SPILL` times the mean of what runs, it
      would make some wait while others idle (consistent hashing with bounded loads). Up to
      `FREE_LOAD` requests are no load: an engine runs so many beside each other.
  A2  What fails before anything of it was heard is asked of the next backend, and nobody notices.
      Behind that it is an error: what was shown cannot be taken back. A request that two backends
      failed on is asked of no third, as it may be what they die of.
  A3  A backend is asked nothing until it was probed, and is probed again each time it comes back,
      or says that its model is another: it may be another version with another model by then.
  A4  No backend at the start is no error: there is none yet, and it is asked once it comes.

Used on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from suture.server.engine.remote.affinity import rendezvous
from suture.server.engine.remote.backend import Backend, BackendCounters
from suture.server.engine.remote.errors import BackendBusy, BackendFailed, BackendUnreachable
from suture.server.engine.remote.health import Health, HealthState
from suture.server.engine.remote.protocol import Heard
from suture.server.errors import SetupError, SutureError

P = TypeVar("P")

# Tighter bounds cost more than they bring: what goes elsewhere is read anew there (docs/scale.md).
SPILL = 2.0
FREE_LOAD = 16
MAX_FAILED = 2
END_OF_LOOKS_S = 1.0

Ask = Callable[[Backend], AsyncGenerator[Heard, None]]
Failure = BackendBusy | BackendFailed | BackendUnreachable

_log = logging.getLogger("suture.remote")


@dataclass(frozen=True, slots=True)
class BackendStatus(Generic[P]):
    """How a backend does; `why` it is not asked, if it is not, and what the probe found, if it was.

    `n_leased` are the requests that it has now.
    """

    name: str
    state: HealthState
    why: str
    n_leased: int
    counters: BackendCounters
    probed: P | None


@dataclass(slots=True)
class _Member(Generic[P]):
    backend: Backend
    health: Health
    n_leased: int = 0
    was_seen: bool = False
    probed: P | None = None
    fell_ill: asyncio.Event = field(default_factory=asyncio.Event)
    being_looked_at: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        return self.backend.name


class Fleet(Generic[P]):
    """Has backends answer requests, and looks after their health from `start` to `close`.

    `probe` finds out what a backend is and can; what it raises says why that one is of no use.
    `is_same` tells at each look whether it is what was found out of it. Raises `SetupError` for no
    backends, and for the same one twice.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        probe: Callable[[Backend], Awaitable[P]],
        is_same: Callable[[Backend, P], Awaitable[bool]] | None = None,
    ) -> None:
        self._members = {
            backend.name: _Member[P](backend, Health("it has not answered yet"))
            for backend in backends
        }
        if not backends:
            raise SetupError("no backend is named")
        if len(self._members) < len(backends):
            raise SetupError("a backend is named twice")
        self._probe = probe
        self._is_same = is_same
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look at the backends; on the event loop."""
        self._watching = asyncio.get_running_loop().create_task(self._watch_all())

    async def close(self) -> None:
        """Look at nothing any more, and close all connections."""
        if self._watching is not None:
            # One who is cancelled while connecting may leave that connection open.
            with suppress(TimeoutError):
                async with asyncio.timeout(END_OF_LOOKS_S):
                    for member in self._members.values():
                        await member.being_looked_at.acquire()
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        for member in self._members.values():
            await member.backend.close()

    @property
    def n_backends(self) -> int:
        """How many there are, well or not."""
        return len(self._members)

    @property
    def n_ready(self) -> int:
        """How many backends are asked."""
        return sum(member.health.is_healthy for member in self._members.values())

    @property
    def is_ready(self) -> bool:
        """Whether there is a backend to ask."""
        return any(member.health.is_healthy for member in self._members.values())

    @property
    def is_settled(self) -> bool:
        """Whether there is one to ask, or each was looked at in vain."""
        return self.is_ready or all(member.was_seen for member in self._members.values())

    def check_ready(self) -> None:
        """Raise what `stream` raises where there is no backend to ask."""
        self._choose("", frozenset())

    @property
    def status(self) -> list[BackendStatus[P]]:
        """How each backend does."""
        return [
            BackendStatus(
                member.name,
                member.health.state,
                member.health.why,
                member.n_leased,
                member.backend.counters,
                member.probed,
            )
            for member in self._members.values()
        ]

    def probed(self, backend: Backend) -> P:
        """What the probe found out of a backend that is asked."""
        found = self._members[backend.name].probed
        assert found is not None, "a backend is not asked before it was probed"
        return found

    async def stream(self, key: str, ask: Ask) -> AsyncGenerator[tuple[Backend, Heard], None]:
        """What is heard of the first backend that answers, to its finish.

        `ask` is called with one backend after the other; what it raises before it yields is held
        back as long as there is another one to ask. Raises that failure then, and `BackendFailed`
        for an answer that ends without a finish.
        """
        failures: dict[str, Failure] = {}
        while True:
            member = self._next(key, failures)
            n_heard, is_finished = 0, False
            try:
                with self._leased(member) as backend:
                    async with aclosing(ask(backend)) as answer:
                        async for heard in answer:
                            # Some begin with a part that says nothing.
                            n_heard += bool(heard.token_ids or heard.text or heard.finish)
                            is_finished = is_finished or heard.finish is not None
                            yield backend, heard
                    if not is_finished:
                        raise BackendFailed("the server's answer ended in the middle")
                return
            except (BackendBusy, BackendFailed, BackendUnreachable) as failure:
                if n_heard:
                    _log.warning("%s: it failed in the middle of an answer", member.name)
                    raise
                failures[member.name] = failure
            except GeneratorExit:
                # The rest is not wanted, as behind a stop string.
                if n_heard:
                    member.health.answered()
                raise

    def _next(self, key: str, failures: Mapping[str, Failure]) -> _Member[P]:
        """Whom to ask after those that failed; raises the failure that tells most, if none."""
        n_failed = sum(isinstance(failure, BackendFailed) for failure in failures.values())
        try:
            if n_failed < MAX_FAILED:
                return self._choose(key, failures.keys())
        except (BackendBusy, BackendUnreachable):
            if not failures:
                raise
        if n_failed:
            _log.warning("%s: failed on a request, and no other is asked", ", ".join(failures))
        told = list(failures.values())
        raise next((failure for failure in told if isinstance(failure, BackendBusy)), told[-1])

    def _choose(self, key: str, avoid: AbstractSet[str]) -> _Member[P]:
        """Whom to ask; raises `BackendBusy` or `BackendUnreachable` where there is nobody."""
        others = [member for member in self._members.values() if member.name not in avoid]
        healthy = [member for member in others if member.health.is_healthy]
        now = time.monotonic()
        free = {member.name: member for member in healthy if member.health.busy_until <= now}
        if not free:
            raise _nobody(others, healthy, now)
        n_running = 1 + sum(member.n_leased for member in free.values())
        most = max(FREE_LOAD, math.ceil(SPILL * n_running / len(free)))
        order = (free[name] for name in rendezvous(key, free))
        # Not all can have more than the mean.
        return next(member for member in order if member.n_leased < most)

    @contextmanager
    def _leased(self, member: _Member[P]) -> Iterator[Backend]:
        health = member.health
        member.n_leased += 1
        try:
            yield member.backend
        except BackendBusy as error:
            health.busy(time.monotonic() + error.retry_after)
            raise
        except (BackendFailed, BackendUnreachable) as error:
            self._failed(member, error)
            raise
        else:
            health.answered()
        finally:
            member.n_leased -= 1

    def _failed(self, member: _Member[P], error: BackendFailed | BackendUnreachable) -> None:
        health, was_healthy = member.health, member.health.is_healthy
        is_gone = isinstance(error, BackendUnreachable)
        # What a backend says of a failure may quote what was asked, and others will read this.
        why = str(error) if is_gone else "requests fail, one after the other"
        health.failed(why, is_gone=is_gone)
        if was_healthy and not health.is_healthy:
            _log.warning("%s: %s", member.name, why)
            member.fell_ill.set()

    async def _watch_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for member in self._members.values():
                group.create_task(self._watch(member))

    async def _watch(self, member: _Member[P]) -> None:
        """Look at a backend again and again, at once if it falls ill."""
        health = member.health
        while True:
            why = health.why
            async with member.being_looked_at:
                await self._look_at(member)
            if health.why != why:
                _log.warning("%s: %s", member.name, health.why or "it answers")
            with suppress(TimeoutError):
                async with asyncio.timeout(health.pause_s):
                    await member.fell_ill.wait()
                await asyncio.sleep(health.pause_s)
            member.fell_ill.clear()

    async def _look_at(self, member: _Member[P]) -> None:
        """See how a backend does, and probe one that has come back, or is another one now."""
        health = member.health
        try:
            await member.backend.check()
            if health.is_healthy and not await self._is_as_probed(member):
                _log.warning("%s: its model is another now", member.name)
                health.found_ill("its model is another now", is_gone=True)
            if not health.is_healthy:
                member.probed = await self._probe(member.backend)
                health.found_well()
        except BackendBusy as error:
            health.found_draining(str(error))
        except SutureError as error:
            health.found_ill(str(error), is_gone=isinstance(error, BackendUnreachable))
        except Exception:
            _log.exception("%s: looking at it failed", member.name)
            health.found_ill("looking at it failed", is_gone=True)
        finally:
            member.was_seen = True

    async def _is_as_probed(self, member: _Member[P]) -> bool:
        if self._is_same is None or member.probed is None:
            return True
        return await self._is_same(member.backend, member.probed)


def _nobody(
    others: Sequence[_Member[P]], healthy: Sequence[_Member[P]], now: float
) -> BackendBusy | BackendUnreachable:
    """Why there is no backend to ask."""
    if healthy:
        wait_s = math.ceil(min(member.health.busy_until for member in healthy) - now)
        return BackendBusy("every inference server has enough to do", max(wait_s, 1))
    if not others:
        return BackendUnreachable("there is no other inference server")
    return BackendUnreachable(f"no inference server answers: {others[0].health.why}")
