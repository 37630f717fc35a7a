// A conversation on the screen: its messages, kept in sight of the end as it grows, and read out as it is written.

import { byId, make } from "./elements.js";
import { MessageView } from "./message.js";

const NEAR = 64; // pixels from the end that count as there

export class Thread {
  #thread = byId("thread");
  #scroll = byId("scroll");
  #latest = byId("latest");
  #welcome = byId("welcome");
  #views = new Map();
  #shown = null;
  #deeds;
  #isAtEnd = true;

  constructor(deeds) {
    this.#deeds = deeds;
    this.#scroll.addEventListener("scroll", () => {
      this.#isAtEnd = this.#scroll.scrollHeight - this.#scroll.scrollTop - this.#scroll.clientHeight < NEAR;
      this.#latest.hidden = this.#isAtEnd;
    }, { passive: true });
    this.#latest.addEventListener("click", () => this.toEnd());
    // A keyboard that comes up or a text field that grows takes room from above the end.
    new ResizeObserver(() => this.#follow()).observe(this.#scroll);
  }

  /** Show a conversation; `answer` is what this tab is writing into it, or null. */
  show(conversation, answer, { isBusy, model }) {
    if (this.#shown !== conversation.id) {
      this.#views.clear();
      this.#thread.replaceChildren();
      this.#shown = conversation.id;
      this.#isAtEnd = true;
    }
    const { messages } = conversation;
    const last = Object.fromEntries(messages.map((message, index) => [message.role, index]));
    const ids = new Set(messages.map(({ id }) => id));
    for (const [id, view] of this.#views) if (!ids.has(id)) this.#drop(id, view);
    messages.forEach((message, index) => {
      const view = this.#viewOf(message);
      if (this.#thread.children[index] !== view.element) this.#thread.insertBefore(view.element, this.#thread.children[index] ?? null);
      const isLast = last[message.role] === index && (message.role === "user" || index === messages.length - 1);
      view.update(message, { answer: answer?.messageId === message.id ? answer : null, isLast, isBusy });
    });
    this.#welcome.hidden = messages.length > 0;
    if (!messages.length) this.#greet(model);
    this.#follow();
  }

  /** Only the message that is growing. */
  grow(conversation, answer) {
    const message = conversation.messages.find(({ id }) => id === answer.messageId);
    if (!message) return;
    this.#views.get(message.id)?.update(message, { answer, isLast: true, isBusy: true });
    this.#follow();
  }

  toEnd() {
    this.#isAtEnd = true;
    this.#follow();
  }

  editLast() {
    [...this.#views.values()].findLast(({ role }) => role === "user")?.edit();
  }

  #viewOf(message) {
    if (!this.#views.has(message.id)) this.#views.set(message.id, new MessageView(message, this.#deeds));
    return this.#views.get(message.id);
  }

  #drop(id, view) {
    view.element.remove();
    this.#views.delete(id);
  }

  #greet(model) {
    this.#welcome.replaceChildren(
      make("p", { class: "large" }, model ? ["Talk to ", make("b", {}, model)] : "No model yet"),
      make("p", { class: "quiet" }, "Conversations are kept in this browser."));
  }

  #follow() {
    if (this.#isAtEnd) this.#scroll.scrollTop = this.#scroll.scrollHeight;
    this.#latest.hidden = this.#isAtEnd;
  }
}
