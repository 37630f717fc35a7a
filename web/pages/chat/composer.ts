// The message field: it grows with its text, Enter sends, Shift+Enter adds a line, Escape stops.

import { byId, icon } from "../../shared/elements.ts";

interface Actions {
  send(text: string): void;
  stop(): void;
  editLast(): void;
}

const DRAFT = "pteron.draft."; // in the tab's storage: unsent text survives a reload

export class Composer {
  #field = byId<HTMLTextAreaElement>("question");
  #send = byId<HTMLButtonElement>("send");
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
  }

  /** `isAnswering`: this tab receives an answer, which can be stopped; `isBlocked`: another tab does. */
  show(conversationId: string, isAnswering: boolean, isBlocked: boolean): void {
    this.#isAnswering = isAnswering;
    this.#isBlocked = isBlocked;
    if (this.#conversation !== conversationId) {
      this.#conversation = conversationId;
      this.#field.value = read(conversationId);
    }
    this.#settle();
  }

  focus(): void {
    this.#field.focus();
  }

  #submit(): void {
    const text = this.#field.value;
    if (!text.trim() || this.#isBlocked) return;
    this.#field.value = "";
    this.#keep();
    this.actions.send(text);
    this.#settle();
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
    this.#send.disabled = !this.#isAnswering && (this.#isBlocked || !this.#field.value.trim());
    if (CSS.supports("field-sizing", "content")) return; // then the style sheet does it
    this.#field.style.height = "auto";
    this.#field.style.height = `${this.#field.scrollHeight}px`;
  }

  #keep(): void {
    try {
      if (this.#field.value) sessionStorage.setItem(DRAFT + this.#conversation, this.#field.value);
      else sessionStorage.removeItem(DRAFT + this.#conversation);
    } catch {
      // Without storage, a reload loses the text.
    }
  }
}

function read(conversationId: string): string {
  try {
    return sessionStorage.getItem(DRAFT + conversationId) ?? "";
  } catch {
    return "";
  }
}
