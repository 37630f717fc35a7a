// The message field: it grows with its text, Enter sends, Shift+Enter adds a line, Escape stops. Files are chosen,
// pasted or dropped.

import { byId, icon } from "../../shared/elements.ts";
import { type Attachment, chip, readFile } from "./attachments.ts";
import { notice } from "./notices.ts";
import type { Model } from "./server.ts";
import { keep, tabStorage } from "./storage.ts";

interface Actions {
  send(text: string, attachments: Attachment[]): void;
  stop(): void;
  editLast(): void;
}

const DRAFT = "pteron.draft."; // in the tab's storage: unsent text survives a reload

export class Composer {
  #field = byId<HTMLTextAreaElement>("question");
  #send = byId<HTMLButtonElement>("send");
  #files = byId<HTMLInputElement>("files");
  #attached = new Map<string, Attachment[]>(); // by conversation; a reload loses them
  #model: Model | null = null;
  #conversation = "";
  #isAnswering = false;
  #isBlocked = false;

  constructor(private actions: Actions) {
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.#isAnswering) actions.stop();
      else this.#submit();
    });
    this.#field.addEventListener("input", () => {
      this.#keep();
      this.#settle();
    });
    this.#field.addEventListener("keydown", (event) => this.#press(event));
    window.addEventListener("resize", () => this.#settle());
    this.#takeFiles();
  }

  /** `isAnswering`: this tab receives an answer, which can be stopped; `isBlocked`: another tab does. */
  show(conversationId: string, model: Model | null, isAnswering: boolean, isBlocked: boolean): void {
    this.#model = model;
    this.#isAnswering = isAnswering;
    this.#isBlocked = isBlocked;
    if (this.#conversation !== conversationId) {
      this.#conversation = conversationId;
      this.#field.value = tabStorage?.getItem(DRAFT + conversationId) ?? "";
      this.#showAttached();
    }
    this.#settle();
  }

  focus(): void {
    this.#field.focus();
  }

  get #attachments(): Attachment[] {
    return this.#attached.get(this.#conversation) ?? [];
  }

  get #isBlank(): boolean {
    return !this.#field.value.trim() && !this.#attachments.length;
  }

  #submit(): void {
    if (this.#isBlank || this.#isBlocked) return;
    const [text, attachments] = [this.#field.value.trim() ? this.#field.value : "", this.#attachments];
    this.#field.value = "";
    this.#keep();
    this.#attach([]);
    this.actions.send(text, attachments);
    this.#settle();
  }

  #takeFiles(): void {
    const button = byId("attach");
    button.append(icon("clip"));
    button.addEventListener("click", () => this.#files.click());
    this.#files.addEventListener("change", () => this.#add(this.#files.files));
    this.#field.addEventListener("paste", (event) => this.#addFrom(event, event.clipboardData));
    byId("main").addEventListener("dragover", (event) => {
      if (event.dataTransfer?.types.includes("Files")) event.preventDefault(); // it can be dropped
    });
    byId("main").addEventListener("drop", (event) => this.#addFrom(event, event.dataTransfer));
  }

  #addFrom(event: Event, source: DataTransfer | null): void {
    const isText = ["text/plain", "text/html"].every((type) => source?.types.includes(type)); // with a picture of it
    if (!source?.files.length || isText) return;
    event.preventDefault();
    this.#add(source.files);
  }

  async #add(files: FileList | null): Promise<void> {
    const [conversation, model] = [this.#conversation, this.#model]; // another may be shown before a file is read
    for (const file of [...(files ?? [])]) {
      try {
        const read = await readFile(file, model?.takesImages ?? false, model?.id ?? "This server");
        this.#attach([...(this.#attached.get(conversation) ?? []), read], conversation);
      } catch (error) {
        notice((error as Error).message);
      }
    }
    this.#files.value = ""; // so that the same file can be chosen again
    this.focus();
  }

  #attach(attachments: Attachment[], conversation = this.#conversation): void {
    this.#attached.set(conversation, attachments);
    this.#showAttached();
    this.#settle();
  }

  #showAttached(): void {
    const attachments = this.#attachments;
    const remove = (gone: Attachment) => this.#attach(attachments.filter((each) => each !== gone));
    byId("attached").replaceChildren(...attachments.map((each) => chip(each, () => remove(each))));
  }

  #press(event: KeyboardEvent): void {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      if (!this.#isAnswering) this.#submit();
    } else if (event.key === "ArrowUp" && !this.#field.value && !this.#isAnswering && !this.#isBlocked) {
      event.preventDefault();
      this.actions.editLast();
    }
  }

  #settle(): void {
    const label = this.#isAnswering ? "Stop" : "Send";
    if (this.#send.getAttribute("aria-label") !== label || !this.#send.firstChild) {
      this.#send.replaceChildren(icon(this.#isAnswering ? "stop" : "send"));
      this.#send.setAttribute("aria-label", label);
      this.#send.title = this.#isAnswering ? "Stop (Esc)" : "Send (Enter)";
    }
    this.#send.disabled = !this.#isAnswering && (this.#isBlocked || this.#isBlank);
    if (CSS.supports("field-sizing", "content")) return; // then the style sheet does it
    this.#field.style.height = "auto";
    this.#field.style.height = `${this.#field.scrollHeight}px`;
  }

  #keep(): void {
    keep(tabStorage, DRAFT + this.#conversation, this.#field.value);
  }
}
