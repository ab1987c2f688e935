import assert from "node:assert/strict";
import test from "node:test";

import {explanation} from "../src/explanation";
import type {Explained} from "../src/protocol";

const EXPLAINED: Explained = {
  suggestion: {text: "me = 1\n", delete_after: 1},
  reason: null,
  message: "",
  source: "server",
  took_ms: 41.5,
  report: {
    healing: {level: "exact", dropped_tokens: 2, pending: "user`Na", nodes: 3},
    prompt: {tokens: 200, reused: 150, evaluated: 50, layout: "anchor", truncated: true, excluded: 1},
    draft: {proposed: 4, accepted: 3},
    rules: ["closers"],
    confidence: 0.731,
  },
  files: ["lib/orders.py"],
  status: {kind: "Normal", busy: false, message: "", reason: null},
};

test("a suggestion is told with its source, time, healing and prompt", () => {
  const text = explanation(EXPLAINED);
  for (const said of [
    "# What was suggested",
    "me = 1",
    "It takes the place of 1 character behind the cursor.",
    "It was asked of the server. It took 41.5 ms.",
    "`user'Na` at the cursor (2 tokens) was given back",
    "200 tokens, 150 of them from the cache, 50 evaluated.",
    `[${"=".repeat(30)}${"#".repeat(10)}]`,
    "Text far from the cursor was left out",
    "Left out of other files, for they hold secrets: 1 part.",
    "3 of 4 drafted tokens came true",
    "`lib/orders.py`",
    "`closers`",
    "73 %",
    "Nothing is wrong with it.",
    '"layout": "anchor"',
  ]) {
    assert.ok(text.includes(said), `${said}\n---\n${text}`);
  }
});

test("of nothing the reason is told", () => {
  const nothing: Explained = {
    ...EXPLAINED, suggestion: null, report: {}, source: "", reason: "MIDWORD", message: "the cursor is inside a word",
    status: {kind: "Error", busy: false, message: "no server", reason: "UNREACHABLE"},
  };
  const text = explanation(nothing);
  assert.match(text, /^# Why nothing was suggested\n\n`MIDWORD`: the cursor is inside a word\.\n/);
  assert.match(text, /Error: `UNREACHABLE` no server/);
  assert.doesNotMatch(text, /All that it reported/);
});

test("a suggestion with fences stays within its own", () => {
  const text = explanation({...EXPLAINED, suggestion: {text: "````md\n# no heading\n````", delete_after: 0}});
  assert.ok(text.includes("`````\n````md\n# no heading\n````\n`````"));
});
