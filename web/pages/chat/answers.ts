// The answers that this tab is receiving: at most one per conversation, each with its own request.
//
// Text is stored as it arrives, so that a reload of the page keeps it.

import { newId } from "../../shared/elements.ts";
import { chat, Refused } from "./server.ts";
import { requestBody } from "./settings_fields.ts";
import { SpeedMeter } from "./speed.ts";
import type { Conversation, Message, Store } from "./store.ts";

const SAVE_EVERY = 400; // milliseconds
const BEAT_EVERY = 4000;
export const STALE_AFTER = 20_000; // a tab without a sign of life for this long is gone
const TRIES_MAX = 8;

/** An answer that this tab receives. */
export interface Answer {
  conversationId: string;
  messageId: string;
  text: string;
  speed: SpeedMeter | null;
  state: NonNullable<Message["state"]>;
  finish: string | null;
  error: string | null;
  waitsUntil: number | null; // when a busy server is asked again
  controller: AbortController;
  tryNow: () => void;
  saved: number;
}

export type AskKey = (reason: string) => Promise<boolean>;

/** Whether another tab is receiving a message. */
export function isInOtherTab(message: Message): boolean {
  return message.state === "streaming" && Date.now() - (message.beat ?? 0) < STALE_AFTER;
}

export class Answers extends EventTarget {
  #running = new Map<string, Answer>(); // by conversation

  /** `modelOf(conversation)` resolves to a model's name; `askKey(reason)` to whether the user entered a key. */
  constructor(
    private store: Store,
    private modelOf: (conversation: Conversation) => Promise<string>,
    private askKey: AskKey,
  ) {
    super();
    window.addEventListener("pagehide", () => this.#leave());
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) for (const answer of this.#running.values()) this.#save(answer);
    });
  }

  of(conversationId: string): Answer | null {
    return this.#running.get(conversationId) ?? null;
  }

  stop(conversationId: string): void {
    this.of(conversationId)?.controller.abort();
  }

  /** Request an answer to the stored conversation. */
  async start(conversationId: string): Promise<void> {
    if (this.#running.has(conversationId)) return;
    const answer: Answer = {
      conversationId,
      messageId: newId(),
      text: "",
      speed: null,
      state: "streaming",
      finish: null,
      error: null,
      waitsUntil: null,
      controller: new AbortController(),
      tryNow: () => {},
      saved: 0,
    };
    const message: Message = {
      id: answer.messageId,
      role: "assistant",
      text: "",
      state: "streaming",
      beat: Date.now(),
    };
    if (!this.store.change(conversationId, ({ messages }) => void messages.push(message))) return;
    this.#running.set(conversationId, answer);
    this.#notify(answer);
    const beat = setInterval(() => this.#save(answer), BEAT_EVERY);
    try {
      await this.#run(answer);
      answer.state = "done";
    } catch (error) {
      if (!answer.controller.signal.aborted)
        Object.assign(answer, { state: "failed", error: (error as Error).message });
      else if (answer.state === "streaming") answer.state = "stopped";
    }
    clearInterval(beat);
    this.#running.delete(conversationId);
    this.#save(answer);
    this.#notify(answer);
  }

  async #run(answer: Answer): Promise<void> {
    const { signal } = answer.controller;
    for (let tries = 1; ; tries++) {
      try {
        const conversation = this.store.get(answer.conversationId);
        if (!conversation) return;
        const model = await this.modelOf(conversation);
        signal.throwIfAborted();
        answer.speed = new SpeedMeter();
        await this.#read(answer, requestBody(conversation, model, answer.messageId));
        return;
      } catch (error) {
        if (signal.aborted || answer.text || !(error instanceof Refused)) throw error; // an answer that has begun is not requested again
        if (error.needsKey && (await this.askKey(error.message))) continue;
        if (!error.isBusy || tries >= TRIES_MAX) throw error;
        await this.#wait(answer, error.seconds ?? Math.min(30, 2 ** tries));
      }
    }
  }

  async #read(answer: Answer, body: object): Promise<void> {
    for await (const chunk of chat(body, answer.controller.signal)) {
      answer.speed?.take(chunk);
      const [choice] = chunk.choices ?? [];
      if (choice?.finish_reason) answer.finish = choice.finish_reason;
      if (typeof choice?.delta?.content === "string") answer.text += choice.delta.content;
      if (performance.now() - answer.saved > SAVE_EVERY) this.#save(answer);
      this.#notify(answer);
    }
  }

  /** Wait until the server may have room, or the user presses a button. */
  async #wait(answer: Answer, seconds: number): Promise<void> {
    const { signal } = answer.controller;
    answer.waitsUntil = Date.now() + seconds * 1000;
    const clock = setInterval(() => this.#notify(answer), 500);
    this.#notify(answer);
    await new Promise<void>((resolve) => {
      answer.tryNow = resolve;
      setTimeout(resolve, seconds * 1000);
      signal.addEventListener("abort", () => resolve(), { once: true });
    });
    clearInterval(clock);
    answer.waitsUntil = null;
    signal.throwIfAborted();
  }

  /** Store the text so far. If the conversation was deleted, the request is aborted. */
  #save(answer: Answer): void {
    answer.saved = performance.now();
    const isThere = this.store.change(answer.conversationId, ({ messages }) => {
      const message = messages.find(({ id }) => id === answer.messageId);
      if (!message) return false;
      const { text, state, finish, error } = answer;
      return Object.assign(message, {
        text,
        state,
        finish,
        error,
        figures: answer.speed?.figures() ?? null,
        beat: Date.now(),
      });
    });
    if (!isThere) answer.controller.abort();
  }

  /** The page is closed: running answers stay incomplete. */
  #leave(): void {
    for (const answer of this.#running.values()) {
      answer.state = "interrupted";
      this.#save(answer);
      answer.controller.abort();
    }
  }

  #notify(answer: Answer): void {
    this.dispatchEvent(new CustomEvent("progress", { detail: answer }));
  }
}
