"""The names under which Prometheus finds what is counted, and the text that it reads.

What llama-server exports has llama-server's name (`llamacpp:`) and meaning, so that its dashboards
work; the rest is `suture_`. Only looking costs anything: the numbers are read from the plain
counters of the threads that count. Each `Metrics` has a registry of its own.

An average is over all the time since the start; for one of late, take the rate of its totals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from suture.server.counters import Measured, Tally

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Metrics:
    """All metrics, from what `measure` returns at the time."""

    def __init__(self, measure: Callable[[], Measured]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(measure))

    def text(self) -> bytes:
        """The page at `/metrics`, of the type `CONTENT_TYPE`."""
        return generate_latest(self._registry)


class _Collector(Collector):
    def __init__(self, measure: Callable[[], Measured]) -> None:
        self._measure = measure

    def collect(self) -> Iterator[Metric]:
        measured = self._measure()
        yield from _llama_server(measured)
        yield from _prompts(measured)
        yield from _waits(measured)
        yield from _ends(measured)
        yield from _shown(measured)
        yield from _tenants(measured)
        yield from _memory(measured)
        yield from _models(measured)
        yield from _backends(measured)


def _llama_server(measured: Measured) -> Iterator[Metric]:
    """What llama-server has as well."""
    counters = measured.counters
    n_evaluated, prompt_s = counters.evaluated_tokens, counters.prompt_seconds
    n_generated, predicted_s = counters.generated_tokens, counters.predicted_seconds
    accepted = dict(counters.accepted)
    n_accepted = sum(n * times for n, times in accepted.items())
    name = "llamacpp:"
    yield _counter(name + "prompt_tokens", "Prompt tokens evaluated, cached ones not.", n_evaluated)
    yield _counter(
        name + "prompt_tokens_cached", "Prompt tokens found in the cache.", counters.reused_tokens
    )
    yield _counter(name + "prompt_seconds", "Seconds spent reading prompts.", prompt_s)
    yield _counter(name + "tokens_predicted", "Tokens generated.", n_generated)
    yield _counter(
        name + "tokens_predicted_seconds",
        "Seconds spent generating, from the first token of each request on.",
        predicted_s,
    )
    yield _gauge(
        name + "prompt_tokens_seconds",
        "Prompt tokens a second while one is read, on average.",
        n_evaluated / prompt_s if prompt_s else 0.0,
    )
    yield _gauge(
        name + "predicted_tokens_seconds",
        "Tokens a second of one request after its first, on average.",
        max(n_generated - counters.first_tokens, 0) / predicted_s if predicted_s else 0.0,
    )
    yield _gauge(name + "requests_processing", "Requests that run.", measured.running)
    yield _gauge(name + "requests_deferred", "Requests that wait for a slot.", measured.waiting)
    yield _counter(name + "n_decode", "Evaluations by the model.", counters.evaluations)
    yield _gauge(
        name + "n_busy_slots_per_decode",
        "Requests in one evaluation, on average.",
        counters.busy_places / max(counters.evaluations, 1),
    )
    # A counter's name would get a `_total` that llama-server's has not.
    yield _gauge(
        name + "n_tokens_max",
        "Tokens of the longest sequence, prompt and text.",
        counters.longest_sequence,
    )
    yield _counter(
        name + "spec_decode_num_draft_tokens", "Tokens drafted.", counters.drafted_tokens
    )
    yield _counter(
        name + "spec_decode_num_accepted_tokens", "Drafted tokens that came true.", n_accepted
    )
    yield _counter(name + "spec_decode_num_drafts", "Drafts verified.", counters.drafts)
    yield _counters(
        name + "spec_decode_num_accepted_tokens_per_pos",
        "Drafted tokens that came true, by their place in the draft.",
        ("position",),
        {
            (str(at),): sum(times for n, times in accepted.items() if n > at)
            for at in range(max(accepted, default=0))
        },
    )


def _prompts(measured: Measured) -> Iterator[Metric]:
    counters, requests = measured.counters, measured.requests
    yield _counter(
        "suture_prompt_tokens", "Prompt tokens, cached and evaluated.", counters.prompt_tokens
    )
    yield _histogram(
        "suture_evaluated_tokens",
        "Prompt tokens evaluated for one request: in an editor, for one key.",
        counters.evaluated_per_request.with_zeros(requests.continued),
    )
    yield _counter(
        "suture_cover_tokens",
        "Tokens evaluated besides prompts, to heal what stands at the cursor.",
        counters.cover_tokens,
    )
    yield _counter(
        "suture_spare_tokens",
        "Prompt tokens evaluated in pauses, for a request that may come.",
        measured.spare.evaluated_tokens,
    )
    yield _counter(
        "suture_continued_requests",
        "Requests answered with the rest of an answer that was known.",
        requests.continued,
    )
    yield _gauge(
        "suture_prefill_tokens_per_second",
        "The speed that prompts are sized by.",
        measured.prefill_tokens_per_s,
    )


def _waits(measured: Measured) -> Iterator[Metric]:
    counters, requests = measured.counters, measured.requests
    yield _counter("suture_requests", "Requests that the engine began.", counters.jobs)
    yield _gauge("suture_preparing_requests", "Requests being planned.", measured.preparing)
    yield _histogram(
        "suture_encode_wait_seconds",
        "From a request's arrival to the beginning of its planning.",
        requests.encode_wait_s,
    )
    yield _histogram("suture_encode_seconds", "Planning of one request.", requests.encode_s)
    yield _histogram(
        "suture_encode_batch_texts",
        "Texts that the encoding queue made tokens of in one batch.",
        measured.encoding.batch_texts,
    )
    yield _counter(
        "suture_encode_batches_cut",
        "Batches that went without waiting texts, whose special-token flags were others.",
        measured.encoding.batches_cut,
    )
    yield _histogram(
        "suture_queue_wait_seconds", "From the plan to the first step.", counters.queue_s
    )
    yield _histogram(
        "suture_inter_token_seconds",
        "Between two steps that draw tokens for one request.",
        counters.inter_token_s,
    )
    yield _counter(
        "suture_detokenize_seconds",
        "Seconds spent making text of tokens.",
        counters.detokenize_seconds,
    )
    yield _histogram(
        "suture_held_bytes", "The most bytes of text that a request held back.", counters.held_bytes
    )
    yield _counter(
        "suture_held_steps", "Steps after which text was held back.", counters.held_steps
    )


def _ends(measured: Measured) -> Iterator[Metric]:
    counters = measured.counters
    waiting = dict(counters.cancelled_waiting)
    finishes: dict[tuple[str, ...], float] = {(at,): n for at, n in dict(counters.finishes).items()}
    cancels: dict[tuple[str, ...], float] = {at: n for at, n in dict(counters.ended_early).items()}
    for reason, n in waiting.items():
        finishes[reason,] = finishes.get((reason,), 0) + n
        cancels[reason, "queued"] = cancels.get((reason, "queued"), 0) + n
    yield _counters(
        "suture_finished_requests",
        "Requests of the engine that have a result, by how they ended.",
        ("finish",),
        finishes,
    )
    yield _counter("suture_failed_requests", "Requests that the engine failed.", counters.failures)
    yield _counters(
        "suture_ended_early",
        "Requests ended before their end, by why and in which phase.",
        ("reason", "phase"),
        cancels,
    )
    yield _histogram(
        "suture_cancel_seconds",
        "From a request's cancelling to its last answer.",
        counters.cancel_s.with_zeros(sum(waiting.values())),
    )
    yield _counter(
        "suture_superseded_unqueued",
        "Requests that a newer one of their session overtook before the queue.",
        measured.requests.superseded,
    )


def _shown(measured: Measured) -> Iterator[Metric]:
    yield _counters(
        "suture_shown_texts",
        "Texts that were shown (view), taken (select) or turned down (dismiss), as clients tell.",
        ("event", "part"),
        {key: n for key, n in dict(measured.shown.events).items()},
    )


def _tenants(measured: Measured) -> Iterator[Metric]:
    yield _counters(
        "suture_tenant_requests",
        "Requests by whose key they came with: accepted, or refused for a limit.",
        ("tenant", "outcome"),
        {key: n for key, n in dict(measured.tenants.requests).items()},
    )


def _memory(measured: Measured) -> Iterator[Metric]:
    counters = measured.counters
    yield _gauge("suture_kv_cells_free", "Tokens that still fit in the cache.", counters.cells_free)
    sequences = GaugeMetricFamily(
        "suture_kv_sequences",
        "Sequences in the cache, and those saved outside it.",
        labels=["state"],
    )
    sequences.add_metric(["running"], counters.sequences_running)
    sequences.add_metric(["idle"], counters.sequences_idle)
    sequences.add_metric(["saved"], counters.sequences_saved)
    yield sequences


def _models(measured: Measured) -> Iterator[Metric]:
    loaded = GaugeMetricFamily(
        "suture_model_loaded", "Whether a model is loaded.", labels=["model"]
    )
    n_bytes = GaugeMetricFamily(
        "suture_model_bytes", "Weights and context of a loaded model.", labels=["model"]
    )
    for model in measured.models:
        loaded.add_metric([model.name], model.is_loaded)
        n_bytes.add_metric([model.name], model.n_bytes if model.is_loaded else 0)
    yield loaded
    yield n_bytes


def _backends(measured: Measured) -> Iterator[Metric]:
    """The servers that run the model; none where this process does."""
    if not measured.backends:
        return
    healthy = GaugeMetricFamily(
        "suture_backend_healthy", "Whether a backend is asked.", labels=["backend"]
    )
    running = GaugeMetricFamily(
        "suture_backend_running", "Requests that a backend has now.", labels=["backend"]
    )
    first = GaugeMetricFamily(
        "suture_backend_first_event_seconds",
        "How long a backend's first events take of late.",
        labels=["backend"],
    )
    for backend in measured.backends:
        healthy.add_metric([backend.name], backend.state == "healthy")
        running.add_metric([backend.name], backend.running)
        if backend.first_event_s is not None:
            first.add_metric([backend.name], backend.first_event_s)
    yield healthy
    yield running
    yield first
    yield _counters(
        "suture_backend_requests",
        "Requests to a backend, its probes too.",
        ("backend",),
        {(backend.name,): backend.requests for backend in measured.backends},
    )
    yield _counters(
        "suture_backend_failures",
        "Requests to a backend that failed, by how.",
        ("backend", "kind"),
        {(b.name, kind): n for b in measured.backends for kind, n in b.failures.items()},
    )


def _counter(name: str, text: str, value: float) -> Metric:
    """A counter, whose samples are called `name` and `_total`."""
    return CounterMetricFamily(name, text, value=value)


def _counters(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _histogram(name: str, text: str, tally: Tally) -> Metric:
    buckets: list[tuple[str, float]] = []
    n = 0
    bounds = (*map(str, tally.bounds), "+Inf")
    for bound, count in zip(bounds, list(tally.counts), strict=True):
        n += count
        buckets.append((bound, n))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=tally.total)
