// Links modules with the npm package `wesl`: `node test/link_wesl.mjs FILE`. FILE is a JSON list of {root, sources,
// conditions}; the last line of the output is a list of texts, or of {error}. tests/cpu/test_wesl.py compares them.
import { readFileSync } from "node:fs";
import { link } from "wesl/core";

const results = [];
for (const { root, sources, conditions } of JSON.parse(readFileSync(process.argv[2], "utf8"))) {
  const mangler = (declaration) => declaration.originalName;
  try {
    const linked = await link({ weslSrc: sources, rootModuleName: root, conditions, mangler, keepComments: false });
    results.push(linked.dest);
  } catch (error) {
    results.push({ error: String(error.message) });
  }
}
console.log(JSON.stringify(results));
