import assert from "node:assert/strict";
import test, {mock} from "node:test";

import {Restarts} from "../src/restarts";

const RESTART = {action: 2, handled: true};
const DO_NOT_RESTART = {action: 1, handled: true};

function watched(): {restarts: Restarts; waits: number[]; told: () => number; live: (ms: number) => void} {
  const waits: number[] = [];
  let told = 0, now = 0;
  const hooks = {ended: (ms: number) => waits.push(ms), failing: () => void told++, now: () => now};
  const restarts = new Restarts(hooks);
  return {restarts, waits, told: () => told, live: (ms) => void (now += ms)};
}

test("each end in a row doubles the wait, up to half a minute, and is told once", async () => {
  mock.timers.enable({apis: ["setTimeout"]});
  const {restarts, waits, told} = watched();
  for (let n = 0; n < 12; n++) {
    const closed = restarts.closed();
    assert.ok(restarts.isWaiting);
    mock.timers.tick(30_000);
    assert.deepEqual(await closed, RESTART);
    assert.ok(!restarts.isWaiting);
    assert.equal(told(), n < 2 ? 0 : 1);
  }
  assert.deepEqual(waits.slice(0, 4), [250, 500, 1000, 2000]);
  assert.equal(waits.at(-1), 30_000);
  mock.timers.reset();
});

test("who lived long is started again at once, however often", async () => {
  mock.timers.enable({apis: ["setTimeout"]});
  const {restarts, waits, told, live} = watched();
  for (let n = 0; n < 5; n++) {
    live(40_000);
    const closed = restarts.closed();
    mock.timers.tick(250);
    assert.deepEqual(await closed, RESTART);
  }
  assert.deepEqual([...new Set(waits)], [250]);
  assert.equal(told(), 0);
  mock.timers.reset();
});

test("after the end nothing is started again, not even what waits for it", async () => {
  const {restarts} = watched();
  const closed = restarts.closed();
  restarts.end();
  assert.deepEqual(await closed, DO_NOT_RESTART);
  assert.deepEqual(await restarts.closed(), DO_NOT_RESTART);
});
