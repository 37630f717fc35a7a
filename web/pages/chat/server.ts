// The server's API: models, and streamed answers. Errors are sentences for the user.

import { eventsOf } from "./events.ts";
import { keep, tabStorage } from "./storage.ts";

export interface Usage {
  prompt_tokens?: number;
  completion_tokens?: number;
  prompt_tokens_details?: { cached_tokens?: number };
}

/** What a part adds to an answer. */
export interface Delta {
  content?: string | null;
  reasoning_content?: string | null;
  reasoning?: string | null;
  tool_calls?: { index?: number; id?: string; function?: { name?: string; arguments?: string } }[];
}

/** A part of a streamed answer, as the API sends it. */
export interface Chunk {
  choices?: { finish_reason?: string | null; delta?: Delta }[];
  usage?: Usage | null;
  error?: { message?: string };
}

export interface Model {
  id: string;
  context: number | null; // length in tokens; null if unknown
  takesImages: boolean;
}

const KEY = "pteron.key"; // in the tab's storage, until the tab is closed
const BUSY = new Set([429, 503]);
const WAIT_MAX = 120;

/** Why there is no answer. `seconds`: when to try again, if the server says so; `needsKey`: a valid key is needed. */
export class Refused extends Error {
  constructor(
    message: string,
    readonly status = 0,
    readonly seconds: number | null = null,
    readonly code = "",
  ) {
    super(message);
  }

  get isTooLong(): boolean {
    return this.code === "context_length_exceeded";
  }

  get needsKey(): boolean {
    return this.status === 401;
  }
  get isBusy(): boolean {
    return BUSY.has(this.status) && (this.status === 429 || this.seconds !== null);
  }
}

let apiKey = tabStorage?.getItem(KEY) ?? "";

export function setKey(text: string): void {
  apiKey = text;
  keep(tabStorage, KEY, text);
}

export async function listModels(): Promise<Model[]> {
  const answer = await ask("v1/models", {});
  const { data } = await answer.json().catch(() => ({}));
  if (!Array.isArray(data) || !data.length) throw new Refused("The server has no model.");
  return data.map((model: Record<string, unknown>) => ({
    id: String(model.id),
    context: Number(model.context_length) || null,
    // Unknown while the server has not loaded the model: then it answers whether it reads them.
    takesImages: !Array.isArray(model.input_modalities) || model.input_modalities.includes("image"),
  }));
}

/** The chunks of an answer, until the server marks its end. */
export async function* chat(body: object, signal: AbortSignal): AsyncGenerator<Chunk> {
  const answer = await ask("v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
  if (!answer.body || !answer.headers.get("Content-Type")?.startsWith("text/event-stream")) {
    throw new Refused("The server does not stream its answer.", answer.status);
  }
  try {
    for await (const data of eventsOf(answer.body)) {
      if (data.trim() === "[DONE]") return;
      const chunk = parsed(data);
      if (chunk.error) throw new Refused(sentence(chunk.error.message ?? "The server could not finish this answer"));
      yield chunk;
    }
  } catch (error) {
    if (error instanceof Refused || isAbort(error)) throw error;
    throw new Refused("The connection broke before the answer was complete.");
  }
  throw new Refused("The connection ended before the answer was complete.");
}

async function ask(path: string, options: RequestInit): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json, text/event-stream" };
  if (options.body) headers["Content-Type"] = "application/json";
  if (apiKey) headers.Authorization = `Bearer ${apiKey}`;
  let answer: Response;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new Refused("The server cannot be reached. Is it still running?");
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => null);
  const message = said?.error?.message ?? `The server answered ${answer.status} ${answer.statusText}`.trim();
  const seconds = secondsUntil(answer.headers.get("Retry-After"));
  throw new Refused(sentence(String(message)), answer.status, seconds, String(said?.error?.code ?? ""));
}

function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

function parsed(data: string): Chunk {
  try {
    return JSON.parse(data) ?? {};
  } catch {
    throw new Refused("The server sent an invalid answer.");
  }
}

/** Retry-After is in seconds or a date. */
function secondsUntil(text: string | null): number | null {
  if (!text) return null;
  const seconds = /^\d+(\.\d+)?$/.test(text) ? Number(text) : (Date.parse(text) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.min(WAIT_MAX, Math.max(0, seconds)) : null;
}

function sentence(text: string): string {
  const whole = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(whole) ? whole : `${whole}.`;
}
