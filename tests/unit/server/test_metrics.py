"""The page for Prometheus: names, types and where each number comes from."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from suture.server.counters import Counters, EncodeCounters, Measured, RequestCounters
from suture.server.metrics import Metrics
from suture.server.request import (
    CompletionResult,
    FinishReason,
    PromptReport,
    StreamReport,
    Timings,
)

# As llama-server's own test of its page has them; n_tokens_max is a counter there.
LLAMA_SERVER_COUNTERS = {
    "prompt_tokens_total",
    "prompt_tokens_cached_total",
    "prompt_seconds_total",
    "tokens_predicted_total",
    "tokens_predicted_seconds_total",
    "n_decode_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "spec_decode_num_drafts_total",
}
LLAMA_SERVER_GAUGES = {
    "n_tokens_max",
    "prompt_tokens_seconds",
    "predicted_tokens_seconds",
    "requests_processing",
    "requests_deferred",
    "n_busy_slots_per_decode",
}


def page(measured: Measured) -> dict[str, float]:
    """Every sample, by its name and labels as they are written."""
    samples = {}
    for family in text_string_to_metric_families(Metrics(lambda: measured).text().decode()):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return samples


def result(finish: FinishReason, n_tokens: int, held: int = 0) -> CompletionResult:
    prompt = PromptReport(tokens=8, reused=3, evaluated=5)
    stream = StreamReport(held_steps=held, held_max_bytes=held)
    return CompletionResult(
        finish,
        completion_tokens=n_tokens,
        prompt=prompt,
        stream=stream,
        timings=Timings(500.0, 2000.0),
    )


def test_what_llama_server_exports_has_its_names_and_types() -> None:
    text = Metrics(Measured).text().decode()
    for kind, names in (("counter", LLAMA_SERVER_COUNTERS), ("gauge", LLAMA_SERVER_GAUGES)):
        for name in names:
            assert f"# TYPE llamacpp:{name} {kind}\n" in text
            assert f"# HELP llamacpp:{name} " in text
            assert f"\nllamacpp:{name} 0.0\n" in text


def test_every_metric_says_what_it_is_and_has_a_prefix() -> None:
    families = list(text_string_to_metric_families(Metrics(Measured).text().decode()))
    assert len(families) > 30
    for family in families:
        assert family.name.startswith(("llamacpp:", "suture_"))
        assert family.documentation.endswith(".")


def test_two_pages_show_what_each_was_made_of() -> None:
    one, other = Measured(running=1), Measured(running=2)
    pages = Metrics(lambda: one), Metrics(lambda: other)
    for at, shown in enumerate(pages, 1):
        assert f"requests_processing {at}.0" in shown.text().decode()


def test_tokens_and_seconds_of_requests_add_up() -> None:
    counters = Counters(prompt_tokens=16, reused_tokens=6, evaluated_tokens=10)
    for n_tokens in (5, 9):
        counters.drawn(None)
        counters.ended(result("eos", n_tokens, held=3), n_evaluated=5)
    shown = page(Measured(counters))

    assert shown["llamacpp:prompt_tokens_total"] == 10
    assert shown["llamacpp:prompt_tokens_cached_total"] == 6
    assert shown["llamacpp:tokens_predicted_total"] == 14
    assert shown["llamacpp:prompt_seconds_total"] == 1
    assert shown["llamacpp:prompt_tokens_seconds"] == 10
    # A request's first token comes with its prompt's last row: 12 tokens in 4 s.
    assert shown["llamacpp:predicted_tokens_seconds"] == 3
    assert shown["suture_finished_requests_total{finish=eos}"] == 2
    assert shown["suture_held_bytes_bucket{le=4.0}"] == 2
    assert shown["suture_held_bytes_bucket{le=2.0}"] == 0
    assert shown["suture_held_steps_total"] == 6


def test_a_key_answered_from_memory_evaluated_nothing() -> None:
    counters = Counters()
    counters.ended(result("stop", 1), n_evaluated=3)
    counters.failed(n_evaluated=40)
    shown = page(Measured(counters, RequestCounters(continued=2)))

    assert shown["suture_evaluated_tokens_bucket{le=0.0}"] == 2
    assert shown["suture_evaluated_tokens_bucket{le=4.0}"] == 3
    assert shown["suture_evaluated_tokens_count"] == 4
    assert shown["suture_evaluated_tokens_sum"] == 43
    assert shown["suture_failed_requests_total"] == 1


def test_batches_of_texts_are_counted_by_their_size() -> None:
    encoding = EncodeCounters(batches_cut=2)
    for n_texts in (1, 6, 32):
        encoding.batch_texts.observe(n_texts)
    shown = page(Measured(encoding=encoding))

    assert shown["suture_encode_batch_texts_count"] == 3
    assert shown["suture_encode_batch_texts_sum"] == 39
    assert shown["suture_encode_batch_texts_bucket{le=8.0}"] == 2
    assert shown["suture_encode_batches_cut_total"] == 2


def test_drafts_are_counted_by_how_far_they_came_true() -> None:
    counters = Counters()
    for n_proposed, n_accepted in ((4, 3), (4, 0), (2, 1)):
        counters.drafted(n_proposed, n_accepted)
    shown = page(Measured(counters))

    name = "llamacpp:spec_decode_num_"
    assert shown[name + "drafts_total"] == 3
    assert shown[name + "draft_tokens_total"] == 10
    assert shown[name + "accepted_tokens_total"] == 4
    by_position = [shown[f"{name}accepted_tokens_per_pos_total{{position={n}}}"] for n in range(3)]
    assert by_position == [2, 1, 1]
    assert f"{name}accepted_tokens_per_pos_total{{position=3}}" not in shown


def test_a_cancel_in_the_queue_counts_as_one_that_took_no_time() -> None:
    counters = Counters()
    counters.ended(result("superseded", 1), n_evaluated=1)
    counters.ended_early["superseded", "decode"] += 1
    counters.cancel_s.observe(0.02)
    counters.cancelled_waiting["superseded"] += 2
    shown = page(Measured(counters))

    assert shown["suture_ended_early_total{phase=queued,reason=superseded}"] == 2
    assert shown["suture_ended_early_total{phase=decode,reason=superseded}"] == 1
    assert shown["suture_finished_requests_total{finish=superseded}"] == 3
    assert shown["suture_cancel_seconds_bucket{le=0.001}"] == 2
    assert shown["suture_cancel_seconds_count"] == 3
    assert shown["suture_cancel_seconds_sum"] == pytest.approx(0.02)


def test_the_cache_is_shown_as_it_is() -> None:
    counters = Counters(
        cells_free=7, sequences_running=1, sequences_idle=2, sequences_saved=3, longest_sequence=9
    )
    shown = page(Measured(counters))
    assert shown["suture_kv_cells_free"] == 7
    states = [shown[f"suture_kv_sequences{{state={s}}}"] for s in ("running", "idle", "saved")]
    assert states == [1, 2, 3]
    assert shown["llamacpp:n_tokens_max"] == 9
