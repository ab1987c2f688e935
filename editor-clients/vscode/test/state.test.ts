import assert from "node:assert/strict";
import test from "node:test";

import type {Kind, Status} from "../src/protocol";
import {say, type State} from "../src/state";

const NOW = 1_000_000;

function status(kind: Kind, reason: string | null, message = "", busy = false): Status {
  return {kind, reason, message, busy};
}

function state(changes: Partial<State> = {}): State {
  return {
    running: {is: "up"},
    status: status("Normal", null),
    isOn: true,
    language: "python",
    isLanguageOn: true,
    snoozedUntil: 0,
    ...changes,
  };
}

test("what the user did comes before what the server says", () => {
  const broken = status("Error", "UNREACHABLE", "no server at http://127.0.0.1:1");
  const saying = (changes: Partial<State>): string => say(state({status: broken, ...changes}), NOW).sentence;
  assert.equal(saying({isOn: false}), "Suggestions are turned off.");
  assert.equal(saying({isLanguageOn: false}), "Suggestions are turned off for python.");
  assert.equal(saying({snoozedUntil: NOW + 61_000}), "Suggestions are snoozed for 2 min more.");
  assert.equal(saying({snoozedUntil: NOW - 1}), "No server at http://127.0.0.1:1.");
  assert.equal(saying({running: {is: "missing", why: "It is gone."}}), "It is gone.");
});

test("reasons that come and go with the keys do not change the width", () => {
  for (const reason of [null, "MIDWORD", "EMPTY", "DUPLICATE_SUFFIX", "LOW_CONFIDENCE", "DEADLINE"]) {
    const {short, sentence} = say(state({status: status("Normal", reason)}), NOW);
    assert.equal(short, "", reason ?? "none");
    assert.match(sentence, /^[A-Z].*\.$/);
  }
});

test("lasting reasons are told beside the icon, and errors in their colour", () => {
  const told = say(state({status: status("Error", "AUTH", "the server wants a key")}), NOW);
  assert.deepEqual(told, {short: "key refused", sentence: "The server wants a key.", icon: "error", severity: "error"});
  const loading = say(state({status: status("Normal", "LOADING", "", true)}), NOW);
  assert.deepEqual([loading.short, loading.icon], ["loading", "loading~spin"]);
  const wrong = say(state({status: status("Warning", null, "suture.maxTokens: must be at most 2048")}), NOW);
  assert.deepEqual([wrong.short, wrong.severity], ["settings", "warning"]);
  assert.equal(wrong.sentence, "suture.maxTokens: must be at most 2048.");
});

test("an unknown reason is told by its code", () => {
  assert.equal(say(state({status: status("Normal", "NEW_ONE")}), NOW).sentence, "NEW_ONE.");
});
