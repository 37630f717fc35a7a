// Conversations in the browser's storage, one key each, shared by all tabs.
//
// A change reads the stored conversation, edits it and writes it back, so that two tabs with one conversation keep
// each other's messages. If storage refuses a conversation, it stays in this tab, and an `unsaved` event is sent.

import { newId } from "../../shared/elements.ts";
import type { Attachment } from "./attachments.ts";
import type { Figures } from "./speed.ts";
import { browserStorage } from "./storage.ts";

const PREFIX = "pteron.conversation.";
const VERSION = 1;

/** Roles, and their names. */
export const ROLES = { user: "You", assistant: "Answer", tool: "Result of a tool" };

export interface ToolCall {
  id: string;
  name: string;
  arguments: string; // JSON
}

export interface Message {
  id: string;
  parent: string | null; // the message before it
  role: keyof typeof ROLES;
  text: string;
  call?: string; // the id of the call that it is the result of
  attachments?: Attachment[];
  thinking?: { text: string; began: number; seconds: number | null }; // null: it has not ended
  calls?: ToolCall[];
  model?: string; // that answered
  state?: "streaming" | "done" | "stopped" | "failed" | "interrupted";
  beat?: number; // when its tab was last alive
  finish?: string | null;
  error?: string | null;
  figures?: Figures | null;
}

export interface Conversation {
  version: number;
  id: string;
  title: string;
  created: number;
  changed: number;
  model: string | null;
  system: string;
  tools: string; // JSON
  settings: Record<string, number>;
  messages: Message[]; // of all branches
  leaf: string | null; // the last message of the branch that is shown
  dropped: { last: string; at: string | null } | null; // not sent any more: up to `last`; decided when `at` was the leaf
}

export function blank(id = newId()): Conversation {
  const now = Date.now();
  return {
    version: VERSION,
    id,
    title: "",
    created: now,
    changed: now,
    model: null,
    system: "",
    tools: "",
    settings: {},
    messages: [],
    leaf: null,
    dropped: null,
  };
}

export class Store extends EventTarget {
  #parsed = new Map<string, [string, Conversation | null]>(); // id -> [text in storage, parsed conversation]
  #unsaved = new Map<string, Conversation>();

  constructor() {
    super();
    window.addEventListener("storage", (event) => {
      if (event.key === null) this.#notify(null);
      else if (event.key.startsWith(PREFIX)) this.#notify(event.key.slice(PREFIX.length));
    });
  }

  /** A conversation, read-only, or null. */
  get(id: string): Conversation | null {
    const unsaved = this.#unsaved.get(id);
    if (unsaved) return unsaved;
    const text = this.#read(id);
    if (text === null) return null;
    const known = this.#parsed.get(id);
    if (known?.[0] === text) return known[1];
    const conversation = parsed(text, id);
    this.#parsed.set(id, [text, conversation]);
    return conversation;
  }

  /** All conversations, newest first. */
  all(): Conversation[] {
    const ids = new Set(this.#unsaved.keys());
    for (let index = 0; index < (browserStorage?.length ?? 0); index++) {
      const key = browserStorage?.key(index);
      if (key?.startsWith(PREFIX)) ids.add(key.slice(PREFIX.length));
    }
    return [...ids].flatMap((id) => this.get(id) ?? []).sort((a, b) => b.changed - a.changed);
  }

  put(conversation: Conversation): void {
    this.#write(conversation);
  }

  /** Edit the stored conversation; false, without a change, if it was deleted or `edit` returns false. */
  change(id: string, edit: (conversation: Conversation) => unknown): boolean {
    const stored = this.get(id);
    if (!stored) return false;
    const conversation = structuredClone(stored);
    if (edit(conversation) === false) return false;
    this.#write(conversation);
    return true;
  }

  remove(id: string): void {
    this.#unsaved.delete(id);
    this.#parsed.delete(id);
    browserStorage?.removeItem(PREFIX + id);
    this.#notify(id);
  }

  #read(id: string): string | null {
    return browserStorage?.getItem(PREFIX + id) ?? null;
  }

  #write(conversation: Conversation): void {
    const { id } = conversation;
    const text = JSON.stringify(conversation);
    try {
      if (!browserStorage) throw new Error("there is no storage");
      browserStorage.setItem(PREFIX + id, text);
      this.#parsed.set(id, [text, conversation]);
      this.#unsaved.delete(id);
    } catch {
      if (!this.#unsaved.has(id)) this.dispatchEvent(new Event("unsaved"));
      this.#unsaved.set(id, conversation);
    }
    this.#notify(id);
  }

  #notify(id: string | null): void {
    this.dispatchEvent(new CustomEvent("change", { detail: id }));
  }
}

/** The conversation of a text in storage or in an exported file; null if it is not one. */
export function parsed(text: string, id: string): Conversation | null {
  try {
    const stored: Partial<Conversation> | null = JSON.parse(text);
    if (stored?.version !== VERSION || !Array.isArray(stored.messages)) return null;
    const messages = linked(
      stored.messages.filter((message) => typeof message?.text === "string" && typeof message.id === "string"),
    );
    const leaf = messages.some((message) => message.id === stored.leaf) ? stored.leaf : messages.at(-1)?.id;
    return { ...blank(id), ...stored, id, messages, leaf: leaf ?? null };
  } catch {
    return null;
  }
}

/** Messages as a tree. One with the id of an earlier one is dropped. One whose parent is not an earlier one follows the
 * one before it, as all did before there were branches. */
function linked(messages: Message[]): Message[] {
  const earlier = new Set<string | null>([null]);
  const tree: Message[] = [];
  for (const message of messages) {
    if (earlier.has(message.id)) continue;
    if (!earlier.has(message.parent)) message.parent = tree.at(-1)?.id ?? null;
    tree.push(message);
    earlier.add(message.id);
  }
  return tree;
}
