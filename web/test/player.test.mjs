import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { toHalf, fromHalf, shapeOf, toStorage, floatBits } = await load("player/tensors.ts");
const { evaluate, numbersOf } = await load("player/expressions.ts");

test("every f16 survives a way through f32", () => {
  for (let half = 0; half < 1 << 16; half++) {
    const value = fromHalf(half);
    if (!Number.isNaN(value)) assert.equal(toHalf(value), half);
  }
  assert.equal(toHalf(Number.NaN) & 0x7fff, 0x7e00);
});

test("numbers between two f16 round to the nearer, ties to even", () => {
  assert.equal(toHalf(1 + 2 ** -11), 0x3c00);
  assert.equal(toHalf(1 + 3 * 2 ** -11), 0x3c02);
  assert.equal(toHalf(1 + 2 ** -11 + 2 ** -20), 0x3c01);
  assert.equal(toHalf(65519), 0x7bff);
  assert.equal(toHalf(65520), 0x7c00);
  assert.equal(toHalf(2 ** -25), 0);
  assert.equal(toHalf(3 * 2 ** -25), 2);
});

test("plans hold while their guards do", () => {
  // The tape: p, p * p, (p + 1) / 4; the guard: p * p <= 20.
  const plan = {
    tape: [
      ["symbol", 7],
      ["product", [0, 0, 1], [0, 0, 1]],
      ["quotient", [1, 0, 1], [4]],
    ],
    guards: [[[0, 1, 1], null, 20]],
  };
  assert.deepEqual(numbersOf(plan, new Map([[7, 4]])), [4, 16, 1]);
  assert.equal(numbersOf(plan, new Map([[7, 5]])), null);
  assert.deepEqual(numbersOf(plan, new Map([[7, -2]])), [-2, 4, -1]); // rounded down
  assert.equal(evaluate([3, 0, 2, 2, -1], [4, 16, 1]), 10);
});

test("shapes of inputs", () => {
  assert.deepEqual(
    shapeOf("x", new Float32Array(6), [
      [2, 3],
      [2, 5],
    ]),
    [2, 3],
  );
  assert.throws(
    () =>
      shapeOf("x", new Float32Array(6), [
        [2, 3],
        [3, 2],
      ]),
    /fit several shapes, so state one/,
  );
  assert.throws(
    () => shapeOf("x", new Float32Array(7), [[2, 3]]),
    /no plan for 7 numbers. The site has plans for \[2,3\]/,
  );
  const port = { dtype: "i64", storage: "i32" };
  assert.deepEqual([...new Int32Array(toStorage("x", BigInt64Array.of(5n, -1n), [2], port))], [5, -1]);
  assert.throws(() => toStorage("x", [1.5], [1], port), /1.5 is not an integer of 32 bits/);
  assert.throws(() => toStorage("x", [1], [2], port), /1 numbers do not fill the shape \[2\]/);
  assert.equal(floatBits(-50) >>> 0, 0xc2480000);
});
