// Files of a site: fetched, verified by their hash, kept in the browser's cache.

import { PteronError } from "./errors.ts";
import type { File, Index } from "./format.ts";

const CACHE = "pteron-1";
const ATTEMPTS = 3;
export const VERSION = 1;

export class Store {
  readonly notes: string[] = [];
  private readonly base: URL;
  private readonly cache: Promise<Cache | null>;
  private readonly signal: AbortSignal | undefined;

  constructor(url: string | URL, isCached: boolean, signal?: AbortSignal) {
    const given = new URL(url, globalThis.location?.href);
    const path =
      given.pathname.endsWith(".json") || given.pathname.endsWith("/") ? given.pathname : `${given.pathname}/`;
    this.base = new URL(path + given.search, given);
    this.signal = signal;
    this.cache = isCached ? this.openCache() : Promise.resolve(null);
  }

  private async openCache(): Promise<Cache | null> {
    try {
      return (await globalThis.caches?.open(CACHE)) ?? null;
    } catch {
      // Pages that may not store anything cannot even ask for it.
      this.notes.push("The browser lets this page keep no files: the model is downloaded at every visit.");
      return null;
    }
  }

  /** The site's index: from the network; from the cache if there is no network. */
  async index(): Promise<Index> {
    const url = new URL("program.json", this.base);
    const cache = await this.cache;
    let text: string;
    try {
      const response = await this.fetch(url, "no-cache");
      text = await response.text().catch((error) => {
        throw broken(url, error);
      });
    } catch (error) {
      const kept = await cache?.match(url);
      if (!kept) throw error;
      this.notes.push("There is no network: the files are those of the last visit.");
      text = await kept.text();
    }
    const index = parsed<Index>(url, text);
    if (index?.format !== "pteron-web" || index.version !== VERSION || !index.methods || !index.variants) {
      throw new PteronError("format", `${url} is not a site that this player can read: export it again.`);
    }
    await cache?.put(url, new Response(text)).catch(() => {});
    return index;
  }

  /** The bytes of a file. Tabs that want the same file fetch it once. */
  async get(file: File, onBytes: (count: number) => void = () => {}): Promise<ArrayBuffer> {
    this.signal?.throwIfAborted();
    const url = new URL(file.file, this.base);
    const cache = await this.cache;
    const fetched = async () =>
      (await this.kept(cache, url, file, onBytes)) ?? (await this.download(cache, url, file, onBytes));
    if (!cache || !globalThis.navigator?.locks) return fetched();
    return (await this.kept(cache, url, file, onBytes)) ?? navigator.locks.request(`pteron ${url}`, fetched);
  }

  async json<T>(file: File): Promise<T> {
    return parsed(new URL(file.file, this.base), new TextDecoder().decode(await this.get(file)));
  }

  /** A small fact that outlives the page, such as the result of a check. */
  async remember(key: string, value?: string): Promise<string | undefined> {
    const cache = await this.cache;
    const url = new URL(`pteron-note-${encodeURIComponent(key)}`, this.base);
    if (value !== undefined) await cache?.put(url, new Response(value)).catch(() => {});
    return value ?? (await (await cache?.match(url))?.text());
  }

  /** Forget files of this site that its index does not name any more. */
  async tidy(index: Index): Promise<void> {
    const chunks = index.streams.flatMap((stream) => stream.chunks);
    const others = [index.language?.tokenizer, index.data].filter((file) => file !== undefined);
    const named = new Set([...index.variants, ...chunks, ...others].map(({ file }) => new URL(file, this.base).href));
    const folders = ["weights/", "plans/"].map((name) => new URL(name, this.base).href);
    const cache = await this.cache;
    for (const { url } of (await cache?.keys()) ?? []) {
      if (folders.some((folder) => url.startsWith(folder)) && !named.has(url)) await cache?.delete(url);
    }
  }

  private async kept(
    cache: Cache | null,
    url: URL,
    file: File,
    onBytes: (count: number) => void,
  ): Promise<ArrayBuffer | null> {
    const data = await (await cache?.match(url))?.arrayBuffer();
    if (!data) return null;
    if (await isWhole(data, file)) {
      onBytes(data.byteLength);
      return data;
    }
    await cache?.delete(url); // damaged on the disk
    return null;
  }

  private async download(
    cache: Cache | null,
    url: URL,
    file: File,
    onBytes: (count: number) => void,
  ): Promise<ArrayBuffer> {
    for (let attempt = 1; ; attempt++) {
      let received = 0;
      const count = (bytes: number) => {
        received += bytes;
        onBytes(bytes);
      };
      try {
        const data = await body(await this.fetch(url, attempt > 1 ? "reload" : "default"), count);
        if (!(await isWhole(data, file))) {
          const what =
            data.byteLength < file.bytes ? `only ${data.byteLength} of ${file.bytes} bytes` : "other content";
          throw new PteronError(
            "damaged",
            `${url} is damaged: ${what}. Load the page again, or export the site again.`,
          );
        }
        await this.keep(cache, url, data);
        return data;
      } catch (error) {
        onBytes(-received);
        if (this.signal?.aborted) throw error;
        if (attempt === ATTEMPTS) throw error instanceof PteronError ? error : broken(url, error);
        await new Promise((resolve) => setTimeout(resolve, 200 * attempt));
      }
    }
  }

  private async keep(cache: Cache | null, url: URL, data: ArrayBuffer): Promise<void> {
    try {
      await cache?.put(url, new Response(data));
    } catch {
      const note = "The browser has no room to keep the model: it will be downloaded again at the next visit.";
      if (!this.notes.includes(note)) this.notes.push(note);
    }
  }

  private async fetch(url: URL, mode: RequestCache): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(url, { cache: mode, ...(this.signal ? { signal: this.signal } : {}) });
    } catch (error) {
      if (this.signal?.aborted) throw error;
      throw broken(url, error);
    }
    if (!response.ok)
      throw new PteronError("download", `${url} could not be fetched: the server says ${response.status}.`);
    return response;
  }
}

function parsed<T>(url: URL, text: string): T {
  try {
    return JSON.parse(text);
  } catch {
    throw new PteronError(
      "format",
      `${url} is not JSON, or only a part of it. Load the page again, or export the site again.`,
    );
  }
}

/** The bytes of a response, counted as they arrive. */
async function body(response: Response, count: (bytes: number) => void): Promise<ArrayBuffer> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  const reader = response.body?.getReader();
  for (let part = await reader?.read(); part && !part.done; part = await reader?.read()) {
    parts.push(part.value);
    count(part.value.byteLength);
  }
  return new Blob(parts).arrayBuffer();
}

function broken(url: URL, error: unknown): PteronError {
  const { message } = error as Error;
  return new PteronError(
    "download",
    `${url} could not be fetched (${message}). Is there a network? What has arrived is kept: load the page again.`,
  );
}

async function isWhole(data: ArrayBuffer, file: File): Promise<boolean> {
  if (data.byteLength !== file.bytes) return false;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", data));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("") === file.sha256;
}
