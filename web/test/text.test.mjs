import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { counted, fewDigits, humanBytes } = await load("shared/text.ts");
const { figuresText, secondsText, SpeedMeter } = await load("pages/chat/speed.ts");
const { FIELDS, problemWith } = await load("pages/chat/settings_fields.ts");

test("bytes have one digit after the point and change their unit at a thousand", () => {
  const cases = { 0: "0 B", 999: "999 B", 1000: "1.0 kB", 999949: "999.9 kB", 999950: "1.0 MB", 848200000: "848.2 MB" };
  for (const [count, text] of Object.entries(cases)) assert.equal(humanBytes(Number(count)), text);
  assert.equal(humanBytes(5e15), "5000.0 TB");
});

test("counts and numbers", () => {
  assert.deepEqual(
    [counted(1, "node"), counted(1024, "node"), counted(2, "launch")],
    ["1 node", "1,024 nodes", "2 launches"],
  );
  assert.deepEqual([0, -12, 1 / 3, 1e-7, 1234567].map(fewDigits), ["0", "-12", "0.3333", "1.00e-7", "1.23e+6"]);
});

test("figures of an answer", () => {
  const text = figuresText({ tokens: 1280, rate: 41.2, first: 0.031, prompt: 7, kept: null });
  assert.equal(text, "1,280 tokens · 41/s · first after 31 ms");
  assert.equal(figuresText({ tokens: 1, rate: null, first: null, prompt: null, kept: null }), "1 token");
  assert.deepEqual([0.0994, 0.0995, 9.94, 12.4].map(secondsText), ["99 ms", "0.10 s", "9.94 s", "12 s"]);
  const meter = new SpeedMeter();
  meter.take({ choices: [{ delta: { content: "a" } }] });
  meter.take({ choices: [{ delta: {} }], usage: { prompt_tokens: 5, completion_tokens: 3 } });
  const { tokens, prompt, kept } = meter.figures();
  assert.deepEqual([tokens, prompt, kept], [3, 5, null]);
});

test("settings are checked", () => {
  const [temperature] = FIELDS;
  assert.deepEqual(
    ["", "1.5", "2.1", "-1", "x"].map((text) => problemWith(temperature, text)),
    ["", "", "Temperature must be 2 or less.", "Temperature must be 0 or more.", "Temperature must be a number."],
  );
});
