// One message: its text, how it stands with it, and what can be done with it.

import { isElsewhere } from "./answers.js";
import { copyButton, iconButton, make, setText } from "./elements.js";
import { renderMarkdown } from "./markdown.js";
import { figuresText, secondsText } from "./pace.js";

const ENDS = {
  length: "It ends here because the most tokens were reached.",
  context: "It ends here because the context is full.",
  time: "It ends here because its time was up.",
  content_filter: "The server held the rest back.",
};

export class MessageView {
  #body = make("div", { class: "text" });
  #note = make("p", { class: "note" });
  #figures = make("span", { class: "figures" });
  #actions = make("span", { class: "actions" });
  #foot = make("div", { class: "foot" }, this.#figures, this.#actions);
  #deeds;
  #text = "";
  #offered = "";

  /** `deeds`: edit(id, text), regenerate(), tryNow(). */
  constructor(message, deeds) {
    this.id = message.id;
    this.role = message.role;
    this.#deeds = deeds;
    this.element = make("article", { class: `message ${this.role}`, "data-id": this.id, "aria-label": this.role === "user" ? "You" : "Answer" },
      this.#body, this.#note, this.#foot);
  }

  /** `answer`: what this tab is writing into it, or null; `isLast`: the last of its role. */
  update(message, { answer, isLast, isBusy }) {
    this.#text = answer?.text ?? message.text;
    if (this.#body.isConnected || !this.element.isConnected) this.#showText(answer);
    const figures = answer ? answer.pace?.figures() : message.figures;
    setText(this.#figures, figures ? figuresText(figures) : "");
    if (figures?.prompt) this.#figures.title = promptText(figures);
    this.#showNote(message, answer);
    this.#offer(this.#choices(message, answer, isLast, isBusy));
  }

  #showText(answer) {
    if (this.role === "user") return setText(this.#body, this.#text);
    renderMarkdown(this.#body, this.#text);
    this.#body.classList.toggle("growing", answer !== null && !answer.waitsUntil);
    this.#body.setAttribute("aria-busy", String(answer !== null));
  }

  #showNote(message, answer) {
    const [text, isBad] = noteOf(message, answer);
    this.#note.hidden = !text;
    this.#note.classList.toggle("bad", isBad);
    setText(this.#note, text);
  }

  #choices(message, answer, isLast, isBusy) {
    if (answer) return answer.waitsUntil ? ["now"] : [];
    const choices = this.#text ? ["copy"] : [];
    if (!isLast || isBusy) return choices;
    if (this.role === "user") return [...choices, "edit"];
    const isBroken = !["done", "stopped"].includes(message.state) || !this.#text;
    return [...choices, isBroken ? "retry" : "regenerate"];
  }

  /** Buttons stay the same elements as long as they are the same: the focus stays with them. */
  #offer(choices) {
    if (choices.join() === this.#offered) return;
    this.#offered = choices.join();
    const buttons = {
      copy: () => copyButton(() => this.#text),
      edit: () => iconButton("pencil", "Edit and send again", () => this.edit()),
      regenerate: () => iconButton("again", "Answer again", () => this.#deeds.regenerate()),
      retry: () => make("button", { type: "button", onclick: () => this.#deeds.regenerate() }, "Try again"),
      now: () => make("button", { type: "button", onclick: () => this.#deeds.tryNow() }, "Try now"),
    };
    this.#actions.replaceChildren(...choices.map((name) => buttons[name]()));
  }

  /** The text becomes a field, until it is sent or left as it was. */
  edit() {
    const lines = Math.min(12, this.#text.split("\n").length); // where the style sheet cannot fit it to its text
    const field = make("textarea", { rows: lines, "aria-label": "Your message" });
    field.value = this.#text;
    const leave = () => {
      form.replaceWith(this.#body);
      this.#foot.hidden = false;
      this.#showText(null);
    };
    const form = make("form", {
      class: "edit",
      onsubmit: (event) => {
        event.preventDefault();
        if (!field.value.trim()) return;
        leave();
        this.#deeds.edit(this.id, field.value);
      },
    }, field, make("div", { class: "row" },
      make("button", { type: "button", onclick: leave }, "Cancel"), make("button", { type: "submit", class: "strong" }, "Send")));
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

/** What is to be said of an answer besides its text, and whether it is bad news. */
function noteOf(message, answer) {
  if (answer?.waitsUntil) {
    const seconds = Math.max(0, Math.ceil((answer.waitsUntil - Date.now()) / 1000));
    return [`The server is busy. Trying again in ${seconds} s.`, false];
  }
  if (answer || message.role === "user") return ["", false];
  if (message.state === "failed") return [message.error || "There is no answer.", true];
  if (message.state === "stopped") return [message.text ? "Stopped." : "Stopped before it began.", false];
  if (isElsewhere(message)) return ["Being written in another tab.", false];
  if (message.state === "interrupted" || message.state === "streaming") return ["The page was closed before the answer was whole.", false];
  if (!message.text) return ["The answer is empty.", false];
  return [ENDS[message.finish] ?? "", false];
}

function promptText({ prompt, kept, first }) {
  const read = kept ? `, ${kept.toLocaleString("en")} of them known from before` : "";
  return `Prompt of ${prompt.toLocaleString("en")} tokens${read}${first === null ? "" : `; first token after ${secondsText(first)}`}`;
}
