// The answers that this tab is receiving: at most one per conversation, each with its own request.
//
// Text is stored as it arrives, so that a reload of the page keeps it.

import { newId } from "../../shared/elements.ts";
import { isFull } from "./context.ts";
import { addDelta, endThinking } from "./delta.ts";
import { requestBody } from "./request.ts";
import { chat, type Model, Refused } from "./server.ts";
import { SpeedMeter } from "./speed.ts";
import type { Conversation, Message, Store } from "./store.ts";
import { append, isEmpty } from "./tree.ts";

const SAVE_EVERY = 400; // milliseconds
const BEAT_EVERY = 4000;
export const STALE_AFTER = 20_000; // a tab without a sign of life for this long is gone
const TRIES_MAX = 8;

/** An answer that this tab receives. */
export interface Answer {
  conversationId: string;
  message: Message; // as far as it has arrived
  speed: SpeedMeter | null;
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

  /** `modelOf(conversation)` resolves to the model that answers; `askKey(reason)` to whether the user entered a key. */
  constructor(
    private store: Store,
    private modelOf: (conversation: Conversation) => Promise<Model>,
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
    const message: Message = { id: newId(), parent: null, role: "assistant", text: "", state: "streaming" };
    const answer: Answer = {
      conversationId,
      message,
      speed: null,
      waitsUntil: null,
      controller: new AbortController(),
      tryNow: () => {},
      saved: 0,
    };
    if (!this.store.change(conversationId, (stored) => append(stored, { ...message, beat: Date.now() }))) return;
    this.#running.set(conversationId, answer);
    this.#notify(answer);
    const beat = setInterval(() => this.#save(answer), BEAT_EVERY);
    await this.#run(answer).catch((error: Error) => fail(answer, error));
    clearInterval(beat);
    endThinking(message);
    this.#running.delete(conversationId);
    this.#save(answer);
    this.#notify(answer);
  }

  async #run(answer: Answer): Promise<void> {
    const { controller, message } = answer;
    for (let tries = 1; ; tries++) {
      try {
        await this.#request(answer);
        message.state = "done";
        return;
      } catch (error) {
        const hasBegun = !isEmpty(message) || message.thinking; // then it is not requested again
        if (controller.signal.aborted || hasBegun || !(error instanceof Refused)) throw error;
        if (error.needsKey && (await this.askKey(error.message))) continue;
        if (!error.isBusy || tries >= TRIES_MAX) throw error;
        await this.#wait(answer, error.seconds ?? Math.min(30, 2 ** tries));
      }
    }
  }

  async #request(answer: Answer): Promise<void> {
    const { conversationId, controller, message } = answer;
    const conversation = this.store.get(conversationId);
    if (!conversation) return;
    const { id } = await this.modelOf(conversation);
    controller.signal.throwIfAborted();
    message.model = id;
    answer.speed = new SpeedMeter();
    await this.#read(answer, requestBody(conversation, id, message.id));
    if (message.finish !== "length") return;
    const { context } = await this.modelOf(conversation); // known since the model is loaded
    if (isFull(answer.speed.figures(), context)) message.finish = "context";
  }

  async #read(answer: Answer, body: object): Promise<void> {
    for await (const chunk of chat(body, answer.controller.signal)) {
      answer.speed?.take(chunk);
      const [choice] = chunk.choices ?? [];
      if (choice?.finish_reason) answer.message.finish = choice.finish_reason;
      if (choice?.delta) addDelta(answer.message, choice.delta);
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

  /** Store what has arrived. If the conversation was deleted, the request is aborted. */
  #save(answer: Answer): void {
    answer.saved = performance.now();
    const { parent: _, ...message } = answer.message; // the stored one has its parent
    const isThere = this.store.change(answer.conversationId, ({ messages }) => {
      const stored = messages.find(({ id }) => id === message.id);
      if (!stored) return false;
      return Object.assign(stored, message, { figures: answer.speed?.figures() ?? null, beat: Date.now() });
    });
    if (!isThere) answer.controller.abort();
  }

  /** The page is closed: running answers stay incomplete. */
  #leave(): void {
    for (const answer of this.#running.values()) {
      answer.message.state = "interrupted";
      endThinking(answer.message);
      this.#save(answer);
      answer.controller.abort();
    }
  }

  #notify(answer: Answer): void {
    this.dispatchEvent(new CustomEvent("progress", { detail: answer }));
  }
}

function fail({ controller, message }: Answer, error: Error): void {
  if (!controller.signal.aborted) {
    Object.assign(message, { state: "failed", error: error.message });
    if (error instanceof Refused && error.isTooLong) message.finish = "context";
  } else if (message.state === "streaming") message.state = "stopped";
}
