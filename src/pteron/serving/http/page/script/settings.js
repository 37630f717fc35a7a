// The panel of one conversation's settings: a system prompt, and what is asked of the sampler.

import { byId, iconButton, make, setText } from "./elements.js";
import { FIELDS, wrongWith } from "./wishes.js";

export class Settings {
  #panel = byId("settings");
  #system = make("textarea", { id: "system", rows: "4", placeholder: "None" });
  #rows = new Map();
  #shown = null;
  #deeds;

  /** `deeds`: change(edit), which changes the conversation that is shown, and close(). */
  constructor(deeds) {
    this.#deeds = deeds;
    this.#system.addEventListener("input", () => deeds.change((conversation) => { conversation.system = this.#system.value; }));
    const reset = make("button", { type: "button", onclick: () => this.#reset() }, "As the server has it");
    this.#panel.append(
      make("header", {}, make("h2", {}, "Settings"), iconButton("close", "Close settings", () => deeds.close())),
      make("div", { class: "fields" },
        make("label", { for: "system" }, "System prompt"), this.#system,
        make("p", { class: "quiet" }, "Of this conversation, from its next answer on. What is empty, the server chooses."),
        make("div", { class: "numbers" }, FIELDS.map((field) => this.#row(field))),
        reset));
  }

  show(conversation) {
    const isOther = this.#shown !== conversation.id;
    this.#shown = conversation.id;
    fill(this.#system, conversation.system, isOther);
    for (const [name, { input, field, note }] of this.#rows) {
      fill(input, String(conversation.settings[name] ?? ""), isOther);
      if (isOther) this.#judge(input, field, note);
    }
  }

  #row(field) {
    const id = `field-${field.name}`;
    const note = make("small", { id: `${id}-note` }, field.hint);
    const input = make("input", {
      id, type: "text", inputmode: Number.isInteger(field.step) && field.min >= 0 ? "numeric" : "text", placeholder: "default",
      autocomplete: "off", "aria-describedby": note.id,
      oninput: () => {
        if (this.#judge(input, field, note)) return;
        const text = input.value.trim();
        this.#deeds.change(({ settings }) => {
          if (text === "") delete settings[field.name];
          else settings[field.name] = Number(text);
        });
      },
      onkeydown: (event) => step(event, input, field),
    });
    this.#rows.set(field.name, { input, field, note });
    return [make("label", { for: id }, field.label), input, note];
  }

  /** Whether something is wrong with what a field holds; then it says so, and the last good value counts. */
  #judge(input, field, note) {
    const wrong = wrongWith(field, input.value);
    input.setAttribute("aria-invalid", String(wrong !== ""));
    note.classList.toggle("bad", wrong !== "");
    setText(note, wrong || field.hint);
    return wrong !== "";
  }

  #reset() {
    this.#deeds.change((conversation) => { conversation.settings = {}; });
    this.#shown = null; // so that all fields are filled anew
    this.#deeds.change(() => {});
  }
}

/** What another tab wrote is shown, but not in the middle of somebody's typing. */
function fill(input, text, isOther) {
  if (input.value !== text && (isOther || document.activeElement !== input) && (isOther || input.getAttribute("aria-invalid") !== "true")) input.value = text;
}

/** Arrows count up and down. */
function step(event, input, field) {
  const sign = { ArrowUp: 1, ArrowDown: -1 }[event.key];
  if (!sign || wrongWith(field, input.value)) return;
  event.preventDefault();
  const from = input.value.trim() === "" ? Math.max(field.min, 0) : Number(input.value) + sign * field.step;
  const next = Math.min(field.max ?? Infinity, Math.max(field.min, from));
  input.value = String(Number(next.toFixed(6)));
  input.dispatchEvent(new Event("input"));
}
