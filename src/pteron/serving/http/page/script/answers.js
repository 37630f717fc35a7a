// Answers that this tab is asking for: at most one a conversation, each with its own request.
//
// What arrives is kept as it arrives: a reload loses what was on its way, not what was there.

import { newId } from "./elements.js";
import { Pace } from "./pace.js";
import { chat } from "./server.js";
import { requestBody } from "./wishes.js";

const SAVE_EVERY = 400; // milliseconds
const BEAT_EVERY = 4000;
export const STALE_AFTER = 20_000; // a tab that has said nothing for so long is gone
const TRIES_MAX = 8;

/** Whether some other tab is at work on a message. */
export function isElsewhere(message) {
  return message.state === "streaming" && Date.now() - (message.beat ?? 0) < STALE_AFTER;
}

export class Answers extends EventTarget {
  #store;
  #running = new Map(); // by conversation
  #modelOf;
  #askKey;

  /** `modelOf(conversation)` promises a model's name; `askKey(reason)` asks the user, and promises whether there is one. */
  constructor(store, modelOf, askKey) {
    super();
    this.#store = store;
    this.#modelOf = modelOf;
    this.#askKey = askKey;
    window.addEventListener("pagehide", () => this.#leave());
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) for (const answer of this.#running.values()) this.#save(answer);
    });
  }

  of(conversationId) {
    return this.#running.get(conversationId) ?? null;
  }

  stop(conversationId) {
    this.of(conversationId)?.controller.abort();
  }

  /** Ask for an answer to a conversation as it stands in the store. */
  async start(conversationId) {
    if (this.#running.has(conversationId)) return;
    const answer = {
      conversationId, messageId: newId(), text: "", pace: null, state: "streaming", finish: null, error: null, waitsUntil: null,
      controller: new AbortController(), tryNow: () => {}, saved: 0,
    };
    const message = { id: answer.messageId, role: "assistant", text: "", state: "streaming", beat: Date.now() };
    if (!this.#store.change(conversationId, ({ messages }) => void messages.push(message))) return;
    this.#running.set(conversationId, answer);
    this.#tell(answer);
    const beat = setInterval(() => this.#save(answer), BEAT_EVERY);
    try {
      await this.#run(answer);
      answer.state = "done";
    } catch (error) {
      if (!answer.controller.signal.aborted) Object.assign(answer, { state: "failed", error: error.message });
      else if (answer.state === "streaming") answer.state = "stopped";
    }
    clearInterval(beat);
    this.#running.delete(conversationId);
    this.#save(answer);
    this.#tell(answer);
  }

  async #run(answer) {
    const { signal } = answer.controller;
    for (let tries = 1; ; tries++) {
      try {
        const conversation = this.#store.get(answer.conversationId);
        const model = await this.#modelOf(conversation);
        signal.throwIfAborted();
        answer.pace = new Pace();
        await this.#read(answer, requestBody(conversation, model, answer.messageId));
        return;
      } catch (error) {
        if (signal.aborted || answer.text) throw error; // what began is not asked for twice
        if (error.needsKey && (await this.#askKey(error.message))) continue;
        if (!error.isBusy || tries >= TRIES_MAX) throw error;
        await this.#wait(answer, error.seconds ?? Math.min(30, 2 ** tries));
      }
    }
  }

  async #read(answer, body) {
    for await (const chunk of chat(body, answer.controller.signal)) {
      answer.pace.take(chunk);
      const [choice] = chunk.choices ?? [];
      if (choice?.finish_reason) answer.finish = choice.finish_reason;
      if (typeof choice?.delta?.content === "string") answer.text += choice.delta.content;
      if (performance.now() - answer.saved > SAVE_EVERY) this.#save(answer);
      this.#tell(answer);
    }
  }

  /** Until the server has room again, or the user does not want to wait. */
  async #wait(answer, seconds) {
    const { signal } = answer.controller;
    answer.waitsUntil = Date.now() + seconds * 1000;
    const clock = setInterval(() => this.#tell(answer), 500);
    this.#tell(answer);
    await new Promise((resolve) => {
      answer.tryNow = resolve;
      setTimeout(resolve, seconds * 1000);
      signal.addEventListener("abort", resolve, { once: true });
    });
    clearInterval(clock);
    answer.waitsUntil = null;
    signal.throwIfAborted();
  }

  /** Write what there is into the stored conversation; where that is gone, nobody wants the rest. */
  #save(answer) {
    answer.saved = performance.now();
    const isThere = this.#store.change(answer.conversationId, ({ messages }) => {
      const message = messages.find(({ id }) => id === answer.messageId);
      if (!message) return false;
      const { text, state, finish, error } = answer;
      Object.assign(message, { text, state, finish, error, figures: answer.pace?.figures() ?? null, beat: Date.now() });
    });
    if (!isThere) answer.controller.abort();
  }

  /** The page goes: what is half written stays so. */
  #leave() {
    for (const answer of this.#running.values()) {
      answer.state = "interrupted";
      this.#save(answer);
      answer.controller.abort();
    }
  }

  #tell(answer) {
    this.dispatchEvent(new CustomEvent("progress", { detail: answer }));
  }
}
