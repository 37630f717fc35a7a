// A conversation on the screen: its messages, scrolled to the end while an answer grows.

import { byId, make } from "../../shared/elements.ts";
import type { Answer } from "./answers.ts";
import { type Actions, MessageView } from "./message.ts";
import type { Conversation, Message } from "./store.ts";

const NEAR = 64; // pixels from the end that count as the end

export class Thread {
  #thread = byId("thread");
  #scroll = byId("scroll");
  #latest = byId("latest");
  #welcome = byId("welcome");
  #views = new Map<string, MessageView>();
  #shown: string | null = null;
  #isAtEnd = true;

  constructor(private actions: Actions) {
    this.#scroll.addEventListener(
      "scroll",
      () => {
        this.#isAtEnd = this.#scroll.scrollHeight - this.#scroll.scrollTop - this.#scroll.clientHeight < NEAR;
        this.#latest.hidden = this.#isAtEnd;
      },
      { passive: true },
    );
    this.#latest.addEventListener("click", () => this.toEnd());
    // A phone's keyboard, or a growing message field, shrinks the visible part.
    new ResizeObserver(() => this.#follow()).observe(this.#scroll);
  }

  /** Show a conversation; `answer` is the one that this tab is receiving, or null. */
  show(conversation: Conversation, answer: Answer | null, isBusy: boolean, model: string | undefined): void {
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
      if (this.#thread.children[index] !== view.element)
        this.#thread.insertBefore(view.element, this.#thread.children[index] ?? null);
      const isLast = last[message.role] === index && (message.role === "user" || index === messages.length - 1);
      view.update(message, answer?.messageId === message.id ? answer : null, isLast, isBusy);
    });
    this.#welcome.hidden = messages.length > 0;
    if (!messages.length) this.#greet(model);
    this.#follow();
  }

  /** Update only the message that is growing. */
  grow(conversation: Conversation, answer: Answer): void {
    const message = conversation.messages.find(({ id }) => id === answer.messageId);
    if (!message) return;
    this.#views.get(message.id)?.update(message, answer, true, true);
    this.#follow();
  }

  toEnd(): void {
    this.#isAtEnd = true;
    this.#follow();
  }

  editLast(): void {
    [...this.#views.values()].findLast(({ role }) => role === "user")?.edit();
  }

  #viewOf(message: Message): MessageView {
    const view = this.#views.get(message.id) ?? new MessageView(message, this.actions);
    this.#views.set(message.id, view);
    return view;
  }

  #drop(id: string, view: MessageView): void {
    view.element.remove();
    this.#views.delete(id);
  }

  #greet(model: string | undefined): void {
    this.#welcome.replaceChildren(
      make("p.large", model ? ["Talk to ", make("b", model)] : "No model yet"),
      make("p.quiet", "Conversations are kept in this browser."),
    );
  }

  #follow(): void {
    if (this.#isAtEnd) this.#scroll.scrollTop = this.#scroll.scrollHeight;
    this.#latest.hidden = this.#isAtEnd;
  }
}
