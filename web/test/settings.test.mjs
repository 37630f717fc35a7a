import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { checkedSettings } = await load("player/settings.ts");

test("settings that Python refuses are refused", () => {
  const refused = [
    [{ temperature: -1 }, "temperature must be 0 or more, not -1."],
    [{ temperature: Number.NaN }, "temperature must be 0 or more, not NaN."],
    [{ temperature: "hot" }, 'temperature must be 0 or more, not "hot".'],
    [{ topP: 2 }, "topP must be above 0 and at most 1, not 2."],
    [{ topK: -3 }, "topK must be an integer of at least 0, not -3."],
    [{ seed: -1 }, "seed must be an integer from 0 to 2147483647, not -1."],
    [{ maxTokens: 0 }, "maxTokens must be an integer of at least 1, not 0."],
    [{ minP: null }, "minP must be from 0 to 1, not null."],
    [{ logitBias: { 5: 101 } }, "logitBias: 101 for token 5 is not from -100 to 100."],
    [{ logitBias: { the: 1 } }, "logitBias: the is not a token."],
    [{ stop: [7] }, "stop must be a text or a list of texts, not 7."],
    [{ max_tokens: 3 }, "There is no setting max_tokens: did you mean maxTokens?"],
    [{ maxNewTokens: 3 }, "There is no setting maxNewTokens: did you mean maxTokens?"],
    [{ top_p: 0.5 }, "There is no setting top_p: did you mean topP?"],
    [9, "The settings must be an object, not 9."],
  ];
  for (const [given, message] of refused)
    assert.throws(() => checkedSettings(given), { code: "input", message }, JSON.stringify(given));
  assert.throws(
    () => checkedSettings({ grammar: 1 }),
    /^PteronError: There is no setting grammar: known are maxTokens, /,
  );
});

test("settings that are taken", () => {
  assert.deepEqual(checkedSettings({ stop: "the", seed: undefined, maxTokens: Number.POSITIVE_INFINITY }), {
    stop: ["the"],
    maxTokens: Number.POSITIVE_INFINITY,
  });
  const all = {
    temperature: 0,
    topK: 0,
    topP: 1,
    minP: 0,
    seed: 2 ** 31 - 1,
    logitBias: { 3: -100 },
    stop: ["a", "b"],
  };
  assert.deepEqual(checkedSettings(all), all);
});
