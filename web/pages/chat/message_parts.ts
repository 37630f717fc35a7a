// Parts of a message: reasoning that folds away, tool calls, the arrows between branches, the field to edit it.

import { iconButton, make, setText, textButton } from "../../shared/elements.ts";
import { renderMarkdown } from "../../shared/markdown.ts";
import { prettyArguments } from "./delta.ts";
import { secondsText } from "./speed.ts";
import type { Message, ToolCall } from "./store.ts";

/** Reasoning: open while it arrives, folded when the answer begins. */
export class ThinkingView {
  readonly element = make("details.thinking", { hidden: true });
  #summary = make("summary");
  #text = make("div.text");
  #isThinking = false;

  constructor() {
    this.element.append(this.#summary, this.#text);
  }

  update(thinking: Message["thinking"], isGrowing: boolean): void {
    this.element.hidden = !thinking;
    if (!thinking) return;
    const isThinking = isGrowing && thinking.seconds === null;
    if (isThinking !== this.#isThinking) this.element.open = isThinking; // else as the user left it
    this.#isThinking = isThinking;
    const { seconds } = thinking;
    setText(this.#summary, isThinking || seconds === null ? "Thinking" : `Thought for ${secondsText(seconds)}`);
    this.#summary.classList.toggle("running", isThinking);
    renderMarkdown(this.#text, thinking.text, !isThinking);
  }
}

/** The tool calls of an answer; if nobody has answered them, with fields for their results. */
export class CallsView {
  readonly element = make("form.calls", { hidden: true });
  #fields: HTMLTextAreaElement[] = [];
  #drawn = "";

  constructor(send: (results: string[]) => void) {
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      send(this.#fields.map(({ value }) => value));
    });
  }

  update(calls: ToolCall[], isOpen: boolean): void {
    const drawn = JSON.stringify([calls, isOpen]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.element.hidden = !calls.length;
    this.#fields = isOpen ? calls.map(resultField) : [];
    this.element.replaceChildren(
      ...calls.flatMap((call, index) => [callElement(call), ...this.#fields.slice(index, index + 1)]),
      ...(isOpen
        ? [make("button", { type: "submit" }, calls.length > 1 ? "Send the results" : "Send the result")]
        : []),
    );
  }
}

function callElement(call: ToolCall): HTMLElement {
  const head = make("div.code-head", make("span", "Calls ", make("b", call.name)));
  return make("div.code", head, make("pre", { tabindex: "0" }, make("code", prettyArguments(call.arguments))));
}

function resultField(call: ToolCall): HTMLTextAreaElement {
  const label = `Result of ${call.name}`;
  return make("textarea", { rows: "2", required: true, placeholder: label, "aria-label": label });
}

/** "‹ 2/3 ›": the place of a message among its siblings. */
export class BranchesView {
  readonly element = make("span.branches", { role: "group", "aria-label": "Branches" });
  #back = iconButton("back", "Previous branch", () => this.#choose(-1));
  #next = iconButton("next", "Next branch", () => this.#choose(1));
  #count = make("span");
  #ids: string[] = [];
  #at = 0;

  constructor(private choose: (id: string, step: number) => void) {
    this.element.append(this.#back, this.#count, this.#next);
  }

  update(id: string, branches: Message[], isBusy: boolean): void {
    this.#ids = branches.map((message) => message.id);
    this.#at = this.#ids.indexOf(id);
    this.element.hidden = branches.length < 2;
    this.#back.disabled = isBusy || this.#at === 0;
    this.#next.disabled = isBusy || this.#at === branches.length - 1;
    setText(this.#count, `${this.#at + 1}/${branches.length}`);
  }

  #choose(step: number): void {
    this.choose(this.#ids[this.#at + step], step);
  }

  /** Focus the arrow of a direction, or the other one at the end. */
  focus(step: number): void {
    const isBack = step < 0 ? !this.#back.disabled : this.#next.disabled;
    (isBack ? this.#back : this.#next).focus();
  }
}

/** A field with a message's text: `send(text)` with Enter, `leave()` at the end in any case. */
export function editForm(text: string, send: (text: string) => void, leave: () => void): HTMLFormElement {
  const lines = Math.min(12, text.split("\n").length); // for browsers without field-sizing
  const field = make("textarea", { rows: lines, "aria-label": "Your message" });
  field.value = text;
  const form = make(
    "form.edit",
    field,
    make("div.row", textButton("Cancel", leave), make("button", { type: "submit", class: "strong" }, "Send")),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!field.value.trim()) return;
    leave();
    send(field.value);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    } else if (event.key === "Escape") {
      event.stopPropagation();
      leave();
    }
  });
  return form;
}
