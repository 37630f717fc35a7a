// The list of conversations: links, which can be opened in new tabs; renamed and deleted in place.

import { byId, iconButton, make } from "../../shared/elements.ts";
import type { Conversation } from "./store.ts";

interface Actions {
  rename(id: string, title: string | null): void;
  remove(id: string): void;
}
type Row = [id: string, title: string, isRunning: boolean];

export function titleOf(conversation: Conversation): string {
  if (conversation.title) return conversation.title;
  const question = conversation.messages.find(({ role }) => role === "user");
  const first = question?.text.trim().split("\n")[0] || question?.attachments?.[0]?.name || "";
  return first.length > 60 ? `${first.slice(0, 59).trimEnd()}…` : first || "New conversation";
}

export class Sidebar {
  #list = byId("conversations");
  #drawn = "";
  #renaming: string | null = null;

  constructor(private actions: Actions) {
    this.#list.addEventListener("keydown", (event) => this.#move(event));
  }

  /** `running(conversation)`: whether an answer to it is being received. */
  show(conversations: Conversation[], current: string, running: (conversation: Conversation) => boolean): void {
    const rows = conversations.map(
      (conversation): Row => [conversation.id, titleOf(conversation), running(conversation)],
    );
    const drawn = JSON.stringify([rows, current]);
    if (drawn === this.#drawn || this.#renaming) return;
    this.#drawn = drawn;
    const focused = this.#list.contains(document.activeElement) && document.activeElement?.closest("li")?.dataset.id;
    this.#list.replaceChildren(...rows.map((row) => this.#row(row, current)));
    if (focused) (this.#linkOf(focused) ?? byId("new")).focus();
  }

  #linkOf(id: string): HTMLElement | null {
    return this.#list.querySelector(`[data-id="${CSS.escape(id)}"] a`);
  }

  #row([id, title, isRunning]: Row, current: string): Element {
    const link = make("a", { href: `#${id}`, title, "aria-current": id === current ? "page" : null }, title);
    return make(
      "li",
      { "data-id": id, class: isRunning ? "running" : null },
      link,
      iconButton("pencil", `Rename ${title}`, () => this.#rename(id, title)),
      iconButton("bin", `Delete ${title}`, () => this.actions.remove(id)),
    );
  }

  #rename(id: string, title: string): void {
    const field = make("input", {
      type: "text",
      value: title,
      maxlength: "120",
      "aria-label": "Name of the conversation",
    });
    this.#renaming = id;
    const end = (isKept: boolean) => {
      if (this.#renaming !== id) return;
      this.#renaming = null;
      this.#drawn = "";
      this.actions.rename(id, isKept ? field.value.trim() : null);
      this.#linkOf(id)?.focus();
    };
    field.addEventListener("blur", () => end(true));
    field.addEventListener("keydown", (event) => {
      if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
      event.stopPropagation();
      end(event.key === "Enter");
    });
    this.#linkOf(id)?.parentElement?.replaceChildren(field);
    field.focus();
    field.select();
  }

  /** The arrow keys move between conversations. */
  #move(event: KeyboardEvent): void {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    const target = event.target as Element;
    if (!step || target.tagName === "INPUT") return;
    const links = [...this.#list.querySelectorAll("a")];
    const row = target.closest("li");
    const next = links[links.findIndex((link) => row?.contains(link)) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
  }
}
