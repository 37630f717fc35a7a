// player.js: runs sites of `pteron export web`.
//
//     import { Pteron } from "./player.js";
//     const program = await Pteron.load("./");
//     for await (const piece of program.generate("Once upon a time")) show(piece.text);

import type { LoadOptions, Program, PteronApi } from "./api.ts";
import { loadHere } from "./load.ts";
import { loadInWorker, serve } from "./remote.ts";

export type * from "./api.ts";
export { PteronError } from "./errors.ts";

export const Pteron: PteronApi = {
  async load(url: string | URL, options: LoadOptions = {}): Promise<Program> {
    const isWorker = options.worker ?? (typeof Worker !== "undefined" && typeof document !== "undefined");
    return isWorker && navigator.gpu ? loadInWorker(url, import.meta.url, options) : loadHere(url, options);
  },
};

// The same file is the script of its worker.
const scope = globalThis as unknown as { name?: string; postMessage(message: unknown): void; onmessage: null };
if (typeof document === "undefined" && scope.name === "pteron" && typeof scope.postMessage === "function") serve(scope);
