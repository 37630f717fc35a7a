// A conversation on the screen: its messages, scrolled to the end while an answer grows.

import { byId, make, setText, textButton } from "../../shared/elements.ts";
import type { Answer } from "./answers.ts";
import { lastToDrop, splitPath } from "./context.ts";
import { type Actions, MessageView, type Place } from "./message.ts";
import type { Conversation, Message } from "./store.ts";
import { branchesOf } from "./tree.ts";

const NEAR = 64; // pixels from the end that count as the end

export class Thread {
  #thread = byId("thread");
  #scroll = byId("scroll");
  #latest = byId("latest");
  #welcome = byId("welcome");
  #droppedText = make("span");
  #divider = make(
    "p.divider",
    this.#droppedText,
    textButton("Send them again", () => this.actions.restore(), "link"),
  );
  #views = new Map<string, MessageView>();
  #shown: string | null = null;
  #lastPlace?: Place;
  #focusChosen: (() => void) | null = null;
  #isAtEnd = true;

  constructor(private actions: Actions & { restore(): void }) {
    const { choose } = actions;
    actions.choose = (id, step) => {
      this.#isAtEnd = false; // the arrows stay where they are, and keep the focus
      this.#focusChosen = () => this.#views.get(id)?.focusArrow(step);
      choose(id, step);
    };
    this.#scroll.addEventListener("scroll", () => this.#measure(), { passive: true });
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
    const { dropped, sent } = splitPath(conversation);
    const path = [...dropped, ...sent];
    const ids = new Set(path.map(({ id }) => id));
    for (const [id, view] of this.#views) if (!ids.has(id)) this.#drop(id, view);
    const places = placesOf(conversation, dropped, sent, isBusy);
    const elements: Element[] = path.map((message, index) => {
      const view = this.#viewOf(message);
      view.update(message, { ...places[index], answer: answer?.message.id === message.id ? answer : null });
      return view.element;
    });
    this.#lastPlace = places.at(-1);
    setText(this.#droppedText, `${dropped.length} messages above are no longer sent: the context was full.`);
    if (dropped.length) elements.splice(dropped.length, 0, this.#divider);
    else this.#divider.remove();
    for (const [index, element] of elements.entries()) {
      const there = this.#thread.children[index];
      if (there !== element) this.#thread.insertBefore(element, there ?? null);
    }
    this.#focusChosen?.();
    this.#focusChosen = null;
    this.#welcome.hidden = path.length > 0;
    if (!path.length) this.#greet(model);
    this.#follow();
  }

  /** Update only the message that is growing. */
  grow(conversation: Conversation, answer: Answer): void {
    const message = conversation.messages.find(({ id }) => id === answer.message.id);
    if (!message || !this.#lastPlace) return;
    this.#views.get(message.id)?.update(message, { ...this.#lastPlace, answer });
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
    this.#measure();
  }

  #measure(): void {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroll;
    this.#isAtEnd = scrollHeight - scrollTop - clientHeight < NEAR;
    this.#latest.hidden = this.#isAtEnd;
  }
}

function placesOf(conversation: Conversation, dropped: Message[], sent: Message[], isBusy: boolean): Place[] {
  const path = [...dropped, ...sent];
  const hasModel = new Set(path.flatMap(({ model }) => model ?? [])).size > 1;
  const isSettled = conversation.dropped?.at === conversation.leaf;
  const ways: Place["ways"] = isSettled ? [] : lastToDrop(sent) ? ["goOn", "anew"] : ["anew"];
  return path.map((message, index) => ({
    answer: null,
    isLast: index === path.length - 1,
    isBusy,
    isDropped: index < dropped.length,
    ways,
    branches: branchesOf(conversation, message),
    hasModel,
  }));
}
