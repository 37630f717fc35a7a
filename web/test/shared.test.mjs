import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

test("ids differ", async () => {
  const { newId } = await load("shared/elements.ts");
  const ids = Array.from({ length: 100 }, newId);
  assert.equal(new Set(ids).size, 100);
  for (const id of ids) assert.match(id, /^[0-9a-z]{3,21}$/);
});
