// Sources below web/ -> the files that Python packages contain, and dist/ of the npm package.
//
//     node build.mjs           writes them
//     node build.mjs --check   compares them with those in the repository; fails if one differs

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const WEB = dirname(fileURLToPath(import.meta.url));
const PACKAGE = join(WEB, "..", "src", "pteron");
const STATIC = join(PACKAGE, "web", "static");

/** An entry point with all that it imports -> the text of each output by its name, and the licences of the packages in
 * them. What is imported when needed is an output of its own in the format esm. */
async function bundle(entry, format = "esm") {
  const { outputFiles, metafile } = await build({
    entryPoints: [join(WEB, entry)],
    absWorkingDir: WEB,
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    charset: "utf8",
    format,
    splitting: format === "esm",
    chunkNames: "[name]",
    target: ["chrome123", "firefox121", "safari17.5"],
    alias: { entities: "./shared/entities.ts" },
    legalComments: "none", // in licenses.txt
    outdir: "out",
  });
  const texts = Object.fromEntries(outputFiles.map((file) => [basename(file.path), file.text]));
  return { texts, licenses: licensesOf(Object.keys(metafile.inputs)) };
}

function licensesOf(inputs) {
  const names = new Set(inputs.map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]).filter(Boolean));
  return [...names].sort().map((name) => {
    const folder = join(WEB, "node_modules", name);
    const file = readdirSync(folder).find((each) => /^licen[sc]e/i.test(each));
    const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return `${name} ${version}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  });
}

const source = (...parts) => readFileSync(join(WEB, ...parts), "utf8");

/** A page of several files: index.html as it is, scripts, one style sheet. */
async function* site(folder, out) {
  const { texts, licenses } = await bundle(`${folder}/main.ts`);
  if (existsSync(join(WEB, folder, "style.css"))) Object.assign(texts, (await bundle(`${folder}/style.css`)).texts);
  if (licenses.length) texts["licenses.txt"] = licenses.join(`\n${"-".repeat(80)}\n\n`);
  for (const name of readdirSync(join(WEB, folder))) {
    if (/\.(html|svg|js)$/.test(name)) texts[name] = source(folder, name);
  }
  for (const [name, text] of Object.entries(texts)) yield [join(out, name), text];
}

/** A page in one file, with its script, which alone may run, and its styles. Python fills in {{title}} and {{data}}. */
async function* file(folder, out) {
  const { texts, licenses } = await bundle(`${folder}/main.ts`, "iife");
  const script = texts["main.js"];
  const parts = {
    script: `<script>${script}</script>`,
    style: `<style>${(await bundle(`${folder}/style.css`)).texts["style.css"]}</style>`,
    hash: `'sha256-${createHash("sha256").update(script).digest("base64")}'`,
    licenses: licenses.map((text) => `<!--\n${text}-->`).join("\n"),
  };
  yield [out, source("shared", "page.html").replace(/\{\{(\w+)\}\}/g, (place, name) => parts[name] ?? place)];
}

const DECLARED = `
export declare const Pteron: PteronApi;
export declare class PteronError extends Error {
  readonly code: ErrorCode;
}
`;

/** The player for sites, and for the npm package, which also needs its declarations and the licence. */
async function* player() {
  const script = (await bundle("player/index.ts")).texts["index.js"];
  const types = source("player", "api.ts") + DECLARED;
  for (const folder of [STATIC, join(WEB, "dist")]) {
    yield [join(folder, "player.js"), script];
    yield [join(folder, "player.d.ts"), types];
  }
  yield [join(WEB, "LICENSE"), source("..", "LICENSE")];
}

async function* outputs() {
  const has = (path) => existsSync(join(WEB, path));
  if (has("pages/chat")) yield* site("pages/chat", join(PACKAGE, "serving", "page"));
  if (has("pages/inspect")) yield* file("pages/inspect", join(PACKAGE, "tools", "inspect", "page", "page.html"));
  if (has("pages/profile")) yield* file("pages/profile", join(PACKAGE, "tools", "profile", "page.html"));
  if (has("player/index.ts")) yield* player();
  for (const name of has("sites") ? readdirSync(join(WEB, "sites")).sort() : []) {
    if (has(`sites/${name}/main.ts`)) yield* site(`sites/${name}`, join(STATIC, name));
  }
}

const isCheck = process.argv.includes("--check");
for await (const [path, text] of outputs()) {
  const name = relative(join(WEB, ".."), path);
  if (!isCheck) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
    console.log(`${String(Math.ceil(Buffer.byteLength(text) / 1000)).padStart(5)} kB  ${name}`);
  } else if (!name.startsWith("web/") && (!existsSync(path) || readFileSync(path, "utf8") !== text)) {
    console.error(`${name} is not what its sources build: run \`npm run build\` in web/`);
    process.exitCode = 1;
  }
}
