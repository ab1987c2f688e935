import assert from "node:assert/strict";
import test from "node:test";

import {lengthOf} from "../src/part";

test("what is written of an item is told in the item's own units", () => {
  assert.equal(lengthOf("", "ab"), 0);
  assert.equal(lengthOf("a", "ab"), 1);
  assert.equal(lengthOf("ab", "ab"), 2);
  assert.equal(lengthOf("😀", "😀b"), 2);
  assert.equal(lengthOf("a\r\nb", "a\nbc"), 3);
  assert.equal(lengthOf("a\nb", "a\r\nbc"), 4);
});

test("who wrote something else wrote no part of it", () => {
  assert.equal(lengthOf("x", "ab"), undefined);
  assert.equal(lengthOf("abc", "ab"), undefined);
});
