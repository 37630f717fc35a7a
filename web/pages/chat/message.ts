// One message: its text, its state and its buttons.

import { copyButton, iconButton, make, setText } from "../../shared/elements.ts";
import { renderMarkdown } from "../../shared/markdown.ts";
import { type Answer, isInOtherTab } from "./answers.ts";
import { type Figures, figuresText, secondsText } from "./speed.ts";
import type { Message } from "./store.ts";

export interface Actions {
  edit(id: string, text: string): void;
  regenerate(): void;
  tryNow(): void;
}
type Choice = "copy" | "edit" | "regenerate" | "retry" | "now";

const ENDS: Record<string, string> = {
  length: "The answer ends here: it has the maximum number of tokens.",
  context: "The answer ends here: the context is full.",
  time: "The answer ends here: the time limit was reached.",
  content_filter: "The server withheld the rest.",
};

export class MessageView {
  readonly id: string;
  readonly role: Message["role"];
  readonly element: HTMLElement;
  #body = make("div.text");
  #note = make("p.note");
  #figures = make("span.figures");
  #buttons = make("span.actions");
  #foot = make("div.foot", this.#figures, this.#buttons);
  #text = "";
  #offered = "";

  constructor(
    message: Message,
    private actions: Actions,
  ) {
    this.id = message.id;
    this.role = message.role;
    this.element = make(
      "article",
      { class: `message ${this.role}`, "data-id": this.id, "aria-label": this.role === "user" ? "You" : "Answer" },
      this.#body,
      this.#note,
      this.#foot,
    );
  }

  /** `answer`: the answer that this tab is receiving into it, or null; `isLast`: the last of its role. */
  update(message: Message, answer: Answer | null, isLast: boolean, isBusy: boolean): void {
    this.#text = answer?.text ?? message.text;
    if (this.#body.isConnected || !this.element.isConnected) this.#showText(answer);
    const figures = answer ? answer.speed?.figures() : message.figures;
    setText(this.#figures, figures ? figuresText(figures) : "");
    if (figures?.prompt) this.#figures.title = promptText(figures.prompt, figures);
    this.#showNote(message, answer);
    this.#offer(this.#choices(message, answer, isLast, isBusy));
  }

  #showText(answer: Answer | null): void {
    if (this.role === "user") return setText(this.#body, this.#text);
    renderMarkdown(this.#body, this.#text, answer === null);
    this.#body.classList.toggle("growing", answer !== null && !answer.waitsUntil);
    this.#body.setAttribute("aria-busy", String(answer !== null));
  }

  #showNote(message: Message, answer: Answer | null): void {
    const [text, isBad] = noteOf(message, answer);
    this.#note.hidden = !text;
    this.#note.classList.toggle("bad", isBad);
    setText(this.#note, text);
  }

  #choices(message: Message, answer: Answer | null, isLast: boolean, isBusy: boolean): Choice[] {
    if (answer) return answer.waitsUntil ? ["now"] : [];
    const choices: Choice[] = this.#text ? ["copy"] : [];
    if (!isLast || isBusy) return choices;
    if (this.role === "user") return [...choices, "edit"];
    const isBroken = !["done", "stopped"].includes(message.state ?? "") || !this.#text;
    return [...choices, isBroken ? "retry" : "regenerate"];
  }

  /** Buttons are replaced only when they change, so that they keep the focus. */
  #offer(choices: Choice[]): void {
    if (choices.join() === this.#offered) return;
    this.#offered = choices.join();
    const buttons = {
      copy: () => copyButton(() => this.#text),
      edit: () => iconButton("pencil", "Edit and send again", () => this.edit()),
      regenerate: () => iconButton("again", "Answer again", () => this.actions.regenerate()),
      retry: () => make("button", { type: "button", onclick: () => this.actions.regenerate() }, "Try again"),
      now: () => make("button", { type: "button", onclick: () => this.actions.tryNow() }, "Try now"),
    };
    this.#buttons.replaceChildren(...choices.map((name) => buttons[name]()));
  }

  /** Replace the text by a field, until it is sent or cancelled. */
  edit(): void {
    const lines = Math.min(12, this.#text.split("\n").length); // for browsers without field-sizing
    const field = make("textarea", { rows: lines, "aria-label": "Your message" });
    field.value = this.#text;
    const leave = () => {
      form.replaceWith(this.#body);
      this.#foot.hidden = false;
      this.#showText(null);
    };
    const form = make(
      "form.edit",
      {
        onsubmit: (event) => {
          event.preventDefault();
          if (!field.value.trim()) return;
          leave();
          this.actions.edit(this.id, field.value);
        },
      },
      field,
      make(
        "div.row",
        make("button", { type: "button", onclick: leave }, "Cancel"),
        make("button", { type: "submit", class: "strong" }, "Send"),
      ),
    );
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      } else if (event.key === "Escape") {
        event.stopPropagation();
        leave();
      }
    });
    this.#body.replaceWith(form);
    this.#foot.hidden = true;
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }
}

/** The note below an answer, and whether it is an error. */
function noteOf(message: Message, answer: Answer | null): [text: string, isBad: boolean] {
  if (answer?.waitsUntil) {
    const seconds = Math.max(0, Math.ceil((answer.waitsUntil - Date.now()) / 1000));
    return [`The server is busy. Trying again in ${seconds} s.`, false];
  }
  if (answer || message.role === "user") return ["", false];
  if (message.state === "failed") return [message.error || "No answer.", true];
  if (message.state === "stopped") return [message.text ? "Stopped." : "Stopped before it began.", false];
  if (isInOtherTab(message)) return ["Another tab is receiving this answer.", false];
  if (message.state === "interrupted" || message.state === "streaming")
    return ["The page was closed before the answer was complete.", false];
  if (!message.text) return ["The answer is empty.", false];
  return [ENDS[message.finish ?? ""] ?? "", false];
}

function promptText(prompt: number, { kept, first }: Figures): string {
  const read = kept ? `, ${kept.toLocaleString("en")} of them reused from the cache` : "";
  return `Prompt of ${prompt.toLocaleString("en")} tokens${read}${first === null ? "" : `; first token after ${secondsText(first)}`}`;
}
