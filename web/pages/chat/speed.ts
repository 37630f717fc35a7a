// The arrival times of an answer's tokens -> time to the first token, tokens per second, used context.

import type { Chunk, Delta, Usage } from "./server.ts";
import type { Conversation } from "./store.ts";
import { pathOf } from "./tree.ts";

const SECONDS_MIN = 0.02; // too short an interval to compute a rate from

/** Seconds, tokens per second, and counts; null if unknown. */
export interface Figures {
  first: number | null;
  rate: number | null;
  tokens: number;
  prompt: number | null; // tokens of the prompt
  kept: number | null; // those of them that were in the cache
}

export class SpeedMeter {
  #asked = performance.now();
  #first: number | null = null;
  #last = 0;
  #pieces = 0;
  #usage: Usage | null = null;

  /** Add a chunk of the answer. Until the last chunk brings the token counts, each chunk counts as one token. */
  take(chunk: Chunk): void {
    if (chunk.usage) this.#usage = chunk.usage;
    const hasToken = ({ content, reasoning_content, reasoning, tool_calls }: Delta) =>
      content || reasoning_content || reasoning || tool_calls;
    if (!chunk.choices?.some(({ delta }) => delta && hasToken(delta))) return;
    this.#last = performance.now();
    this.#first ??= this.#last;
    this.#pieces += 1;
  }

  figures(): Figures {
    const tokens = this.#usage?.completion_tokens ?? this.#pieces;
    const seconds = (this.#last - (this.#first ?? this.#last)) / 1000;
    return {
      first: this.#first === null ? null : (this.#first - this.#asked) / 1000,
      rate: tokens > 1 && seconds > SECONDS_MIN ? (tokens - 1) / seconds : null,
      tokens,
      prompt: this.#usage?.prompt_tokens ?? null,
      kept: this.#usage?.prompt_tokens_details?.cached_tokens ?? null,
    };
  }
}

/** "128 tokens · 41.2/s · first after 0.31 s". */
export function figuresText({ tokens, rate, first }: Figures): string {
  if (!tokens) return "";
  const parts = [`${tokens.toLocaleString("en")} ${tokens === 1 ? "token" : "tokens"}`];
  if (rate) parts.push(`${rate < 9.95 ? rate.toFixed(1) : Math.round(rate).toLocaleString("en")}/s`);
  if (first !== null) parts.push(`first after ${secondsText(first)}`);
  return parts.join(" · ");
}

/** The tokens that a conversation takes, as of its last answer; null before the first. */
export function usedContext(conversation: Conversation): number | null {
  const figures = pathOf(conversation).findLast((message) => message.figures?.prompt)?.figures;
  return figures?.prompt ? figures.prompt + figures.tokens : null;
}

export function secondsText(seconds: number): string {
  if (seconds < 0.0995) return `${Math.round(seconds * 1000)} ms`;
  return `${seconds.toFixed(seconds < 9.95 ? 2 : 0)} s`;
}
