// The list of conversations: links, which can be opened in new tabs; renamed and deleted in place.

import { byId, iconButton, make } from "./elements.js";

export function titleOf(conversation) {
  if (conversation.title) return conversation.title;
  const first = conversation.messages.find(({ role }) => role === "user")?.text.trim().split("\n")[0] ?? "";
  return first.length > 60 ? `${first.slice(0, 59).trimEnd()}…` : first || "New conversation";
}

export class Sidebar {
  #list = byId("conversations");
  #actions;
  #drawn = "";
  #renaming = null;

  /** `actions`: rename(id, title), remove(id). */
  constructor(actions) {
    this.#actions = actions;
    this.#list.addEventListener("keydown", (event) => this.#move(event));
  }

  /** `running(conversation)`: whether an answer to it is being received. */
  show(conversations, current, running) {
    const rows = conversations.map((conversation) => [conversation.id, titleOf(conversation), running(conversation)]);
    const drawn = JSON.stringify([rows, current]);
    if (drawn === this.#drawn || this.#renaming) return;
    this.#drawn = drawn;
    const focused = this.#list.contains(document.activeElement) ? document.activeElement.closest("li").dataset.id : null;
    this.#list.replaceChildren(...rows.map((row) => this.#row(row, current)));
    if (focused) (this.#list.querySelector(`[data-id="${CSS.escape(focused)}"] a`) ?? byId("new")).focus();
  }

  #row([id, title, isRunning], current) {
    const link = make("a", { href: `#${id}`, title, "aria-current": id === current ? "page" : null }, title);
    return make("li", { "data-id": id, class: isRunning ? "running" : null }, link,
      iconButton("pencil", `Rename ${title}`, () => this.#rename(id, title)),
      iconButton("bin", `Delete ${title}`, () => this.#actions.remove(id)));
  }

  #rename(id, title) {
    const row = this.#list.querySelector(`[data-id="${CSS.escape(id)}"]`);
    const field = make("input", { type: "text", value: title, maxlength: "120", "aria-label": "Name of the conversation" });
    this.#renaming = id;
    const end = (isKept) => {
      if (this.#renaming !== id) return;
      this.#renaming = null;
      this.#drawn = "";
      this.#actions.rename(id, isKept ? field.value.trim() : null);
      this.#list.querySelector(`[data-id="${CSS.escape(id)}"] a`)?.focus();
    };
    field.addEventListener("blur", () => end(true));
    field.addEventListener("keydown", (event) => {
      if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
      event.stopPropagation();
      end(event.key === "Enter");
    });
    row.replaceChildren(field);
    field.focus();
    field.select();
  }

  /** The arrow keys move between conversations. */
  #move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.target.tagName === "INPUT") return;
    const links = [...this.#list.querySelectorAll("a")];
    const row = event.target.closest("li");
    const next = links[links.findIndex((link) => row.contains(link)) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
  }
}
