// The settings panel of a conversation: its system prompt and sampling parameters.

import { byId, type Child, iconButton, make, setText, textButton } from "../../shared/elements.ts";
import { FIELDS, type Field, problemWith, problemWithTools } from "./settings_fields.ts";
import type { Conversation } from "./store.ts";

interface Actions {
  change(edit: (conversation: Conversation) => void): void; // of the shown conversation
  set(fields: Partial<Conversation>): void; // of it
  save(format: "md" | "json"): void;
  load(file: File): void;
  close(): void;
}

export class Settings {
  #panel = byId("settings");
  #system = make("textarea", { id: "system", rows: "4", placeholder: "None" });
  #tools = make("textarea", { id: "tools", rows: "2", placeholder: "None", spellcheck: "false" });
  #toolsNote = make("p.quiet");
  #rows = new Map<string, { input: HTMLInputElement; field: Field; note: HTMLElement }>();
  #shown: string | null = null;

  constructor(private actions: Actions) {
    this.#system.addEventListener("input", () => actions.set({ system: this.#system.value }));
    this.#tools.addEventListener("input", () => {
      if (!this.#isToolsInvalid()) actions.set({ tools: this.#tools.value });
    });
    this.#panel.append(
      make(
        "header",
        make("h2", "Settings"),
        iconButton("close", "Close settings", () => actions.close()),
      ),
      make(
        "div.fields",
        make("label", { for: "system" }, "System prompt"),
        this.#system,
        make("p.quiet", "For this conversation, from the next answer on. Empty fields use the server's defaults."),
        make(
          "div.numbers",
          FIELDS.map((field) => this.#row(field)),
        ),
        textButton("Use the server's defaults", () => this.#reset()),
        make("label", { for: "tools" }, "Tools"),
        this.#tools,
        this.#toolsNote,
        this.#files(),
      ),
    );
  }

  /** Buttons that export and import conversations. */
  #files(): Element {
    const file = make("input", { type: "file", accept: ".json", hidden: true, "aria-label": "A conversation" });
    file.addEventListener("change", () => {
      if (file.files?.[0]) this.actions.load(file.files[0]);
      file.value = "";
    });
    return make(
      "div.files",
      make("b", "Conversation"),
      textButton("Export as Markdown", () => this.actions.save("md")),
      textButton("Export as JSON", () => this.actions.save("json")),
      textButton("Import JSON", () => file.click()),
      file,
    );
  }

  #isToolsInvalid(): boolean {
    const wrong = problemWithTools(this.#tools.value);
    mark(this.#tools, this.#toolsNote, wrong, "A list in JSON, as the API has it. You send the results of calls.");
    return wrong !== "";
  }

  show(conversation: Conversation): void {
    const isOther = this.#shown !== conversation.id;
    this.#shown = conversation.id;
    fill(this.#system, conversation.system, isOther);
    fill(this.#tools, conversation.tools, isOther);
    if (isOther) this.#isToolsInvalid();
    for (const [name, { input, field, note }] of this.#rows) {
      fill(input, String(conversation.settings[name] ?? ""), isOther);
      if (isOther) this.#isInvalid(input, field, note);
    }
  }

  #row(field: Field): Child[] {
    const id = `field-${field.name}`;
    const note = make("small", { id: `${id}-note` }, field.hint);
    const input = make("input", {
      id,
      type: "text",
      inputmode: Number.isInteger(field.step) && field.min >= 0 ? "numeric" : "text",
      placeholder: "default",
      autocomplete: "off",
      "aria-describedby": note.id,
      oninput: () => {
        if (this.#isInvalid(input, field, note)) return;
        const text = input.value.trim();
        this.actions.change(({ settings }) => {
          if (text === "") delete settings[field.name];
          else settings[field.name] = Number(text);
        });
      },
      onkeydown: (event) => step(event, input, field),
    });
    this.#rows.set(field.name, { input, field, note });
    return [make("label", { for: id }, field.label), input, note];
  }

  /** Whether a field is invalid. If so, its note says why, and the last valid value stays in use. */
  #isInvalid(input: HTMLInputElement, field: Field, note: Element): boolean {
    const wrong = problemWith(field, input.value);
    mark(input, note, wrong, field.hint);
    return wrong !== "";
  }

  #reset(): void {
    this.#shown = null; // so that all fields are filled again
    this.actions.set({ settings: {} });
  }
}

/** Show in a note what is wrong with a field, or its hint. */
function mark(input: Element, note: Element, wrong: string, hint: string): void {
  input.setAttribute("aria-invalid", String(wrong !== ""));
  note.classList.toggle("bad", wrong !== "");
  setText(note, wrong || hint);
}

/** Show what another tab wrote, except in the field that the user is typing in. */
function fill(input: HTMLInputElement | HTMLTextAreaElement, text: string, isOther: boolean): void {
  if (
    input.value !== text &&
    (isOther || document.activeElement !== input) &&
    (isOther || input.getAttribute("aria-invalid") !== "true")
  )
    input.value = text;
}

/** The arrow keys count up and down. */
function step(event: KeyboardEvent, input: HTMLInputElement, field: Field): void {
  const sign = event.key === "ArrowUp" ? 1 : event.key === "ArrowDown" ? -1 : 0;
  if (!sign || problemWith(field, input.value)) return;
  event.preventDefault();
  const from = input.value.trim() === "" ? Math.max(field.min, 0) : Number(input.value) + sign * field.step;
  const next = Math.min(field.max ?? Infinity, Math.max(field.min, from));
  input.value = String(Number(next.toFixed(6)));
  input.dispatchEvent(new Event("input"));
}
