// Conversations in the browser's storage, one key each, shared by all tabs.
//
// A change reads the stored conversation, edits it and writes it back, so that two tabs with one conversation keep
// each other's messages. If storage refuses a conversation, it stays in this tab, and an `unsaved` event is sent.

import { newId } from "./elements.js";

const PREFIX = "pteron.conversation.";
const VERSION = 1;

export function blank(id = newId()) {
  const now = Date.now();
  return { version: VERSION, id, title: "", created: now, changed: now, model: null, system: "", settings: {}, messages: [] };
}

export class Store extends EventTarget {
  #storage;
  #parsed = new Map(); // id -> [text in storage, parsed conversation]
  #unsaved = new Map();

  constructor(storage) {
    super();
    this.#storage = storage;
    window.addEventListener("storage", (event) => {
      if (event.key === null) this.#notify(null);
      else if (event.key.startsWith(PREFIX)) this.#notify(event.key.slice(PREFIX.length));
    });
  }

  /** A conversation, read-only, or null. */
  get(id) {
    if (this.#unsaved.has(id)) return this.#unsaved.get(id);
    const text = this.#read(id);
    if (text === null) return null;
    const known = this.#parsed.get(id);
    if (known?.[0] === text) return known[1];
    const conversation = parsed(text, id);
    this.#parsed.set(id, [text, conversation]);
    return conversation;
  }

  /** All conversations, newest first. */
  all() {
    const ids = new Set(this.#unsaved.keys());
    for (let index = 0; index < (this.#storage?.length ?? 0); index++) {
      const key = this.#storage.key(index);
      if (key?.startsWith(PREFIX)) ids.add(key.slice(PREFIX.length));
    }
    return [...ids].map((id) => this.get(id)).filter(Boolean).sort((a, b) => b.changed - a.changed);
  }

  put(conversation) {
    this.#write(conversation);
  }

  /** Edit the stored conversation; false, without a change, if it was deleted or `edit` returns false. */
  change(id, edit) {
    const stored = this.get(id);
    if (!stored) return false;
    const conversation = structuredClone(stored);
    if (edit(conversation) === false) return false;
    this.#write(conversation);
    return true;
  }

  remove(id) {
    this.#unsaved.delete(id);
    this.#parsed.delete(id);
    this.#storage?.removeItem(PREFIX + id);
    this.#notify(id);
  }

  #read(id) {
    return this.#storage?.getItem(PREFIX + id) ?? null;
  }

  #write(conversation) {
    const { id } = conversation;
    const text = JSON.stringify(conversation);
    try {
      if (!this.#storage) throw new Error("there is no storage");
      this.#storage.setItem(PREFIX + id, text);
      this.#parsed.set(id, [text, conversation]);
      this.#unsaved.delete(id);
    } catch {
      if (!this.#unsaved.has(id)) this.dispatchEvent(new Event("unsaved"));
      this.#unsaved.set(id, conversation);
    }
    this.#notify(id);
  }

  #notify(id) {
    this.dispatchEvent(new CustomEvent("change", { detail: id }));
  }
}

/** The storage, or null if the browser has none for this page. */
export function openStorage() {
  try {
    return window.localStorage;
  } catch {
    return null;
  }
}

/** The conversation of a text in storage; null if it is not one. */
function parsed(text, id) {
  try {
    const stored = JSON.parse(text);
    if (stored?.version !== VERSION || !Array.isArray(stored.messages)) return null;
    const messages = stored.messages.filter((message) => typeof message?.text === "string" && typeof message.id === "string");
    return { ...blank(id), ...stored, id, messages };
  } catch {
    return null;
  }
}
