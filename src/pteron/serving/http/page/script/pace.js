// When tokens of an answer come -> how long the first took, how many come in a second, how much context is used.

const SECONDS_MIN = 0.02; // what comes in less came at once: no rate can be told from it

export class Pace {
  #asked = performance.now();
  #first = null;
  #last = null;
  #pieces = 0;
  #usage = null;

  /** A chunk of the answer came. Where chunks hold no count, each is taken as a token until the end says it. */
  take(chunk) {
    if (chunk.usage) this.#usage = chunk.usage;
    if (!chunk.choices?.some((choice) => choice.delta?.content)) return;
    this.#last = performance.now();
    this.#first ??= this.#last;
    this.#pieces += 1;
  }

  /** { first, rate, tokens, prompt, kept }: seconds, tokens a second, and counts; null where unknown. */
  figures() {
    const tokens = this.#usage?.completion_tokens ?? this.#pieces;
    const seconds = (this.#last - this.#first) / 1000;
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
export function figuresText({ tokens, rate, first }) {
  if (!tokens) return "";
  const parts = [`${tokens.toLocaleString("en")} ${tokens === 1 ? "token" : "tokens"}`];
  if (rate) parts.push(`${rate < 9.95 ? rate.toFixed(1) : Math.round(rate).toLocaleString("en")}/s`);
  if (first !== null) parts.push(`first after ${secondsText(first)}`);
  return parts.join(" · ");
}

/** Context that a conversation takes, as of its last answer; null before one. */
export function contextUsed(conversation) {
  const counted = conversation.messages.findLast((message) => message.figures?.prompt);
  return counted ? counted.figures.prompt + counted.figures.tokens : null;
}

export function secondsText(seconds) {
  if (seconds < 0.0995) return `${Math.round(seconds * 1000)} ms`;
  return `${seconds.toFixed(seconds < 9.95 ? 2 : 0)} s`;
}
