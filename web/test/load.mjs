// Lets tests import TypeScript modules: bundled by esbuild into a module in memory.

import { join } from "node:path";
import { build } from "esbuild";

const WEB = join(import.meta.dirname, "..");

/** The exports of a module below web/. */
export async function load(path) {
  const { outputFiles } = await build({
    entryPoints: [join(WEB, path)],
    bundle: true,
    write: false,
    format: "esm",
    platform: "node",
  });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}
