// One message: its text, its state and its buttons.

import { copyButton, iconButton, make, setText, textButton } from "../../shared/elements.ts";
import { renderMarkdown } from "../../shared/markdown.ts";
import { type Answer, isInOtherTab } from "./answers.ts";
import { chip } from "./attachments.ts";
import { BranchesView, CallsView, editForm, ThinkingView } from "./message_parts.ts";
import { type Figures, figuresText, secondsText } from "./speed.ts";
import { type Message, ROLES } from "./store.ts";
import { isEmpty } from "./tree.ts";

export interface Actions {
  edit(id: string, text: string): void;
  regenerate(id: string): void;
  choose(id: string, step: number): void; // another branch, by the arrow of this direction
  sendResults(id: string, results: string[]): void;
  goOn(): void; // without the oldest turns
  startAnew(): void;
  tryNow(): void;
}

/** Where a message is. */
export interface Place {
  answer: Answer | null; // that this tab is receiving into it
  isLast: boolean; // of the conversation
  isBusy: boolean; // an answer is being received
  isDropped: boolean;
  ways: ("goOn" | "anew")[]; // out of a full context
  branches: Message[]; // the message and its siblings
  hasModel: boolean; // the name of its model is shown
}

const ENDS: Record<string, string> = {
  length: "The answer ends here: it has the maximum number of tokens.",
  context: "The context is full: the answer ends here.",
};

export class MessageView {
  readonly id: string;
  readonly role: Message["role"];
  readonly element: HTMLElement;
  #thinking = new ThinkingView();
  #chips = make("div.chips");
  #body = make("div.text");
  #calls = new CallsView((results) => this.actions.sendResults(this.id, results));
  #note = make("p.note");
  #figures = make("span.figures");
  #buttons = make("span.actions");
  #branches = new BranchesView((id, step) => this.actions.choose(id, step));
  #foot = make("div.foot", this.#figures, this.#buttons);
  #text = "";
  #offered = "";

  constructor(
    message: Message,
    private actions: Actions,
  ) {
    this.id = message.id;
    this.role = message.role;
    this.#chips.append(...(message.attachments ?? []).map((each) => chip(each)));
    this.element = make(
      "article",
      { class: `message ${this.role}`, "data-id": this.id, "aria-label": ROLES[this.role] },
      this.role === "assistant" ? this.#thinking.element : null,
      make("div.said", this.#chips, this.#body),
      this.role === "assistant" ? this.#calls.element : null,
      this.#note,
      this.#foot,
    );
    if (this.role === "user") this.element.append(this.#branches.element);
    else this.#foot.prepend(this.#branches.element);
  }

  update(stored: Message, place: Place): void {
    const { answer, isLast, isBusy } = place;
    const message = answer?.message ?? stored;
    this.#text = message.text;
    this.element.classList.toggle("dropped", place.isDropped);
    this.#thinking.update(message.thinking, answer !== null);
    if (this.#body.isConnected || !this.element.isConnected) this.#showText(answer);
    this.#calls.update(message.calls ?? [], isLast && !isBusy);
    this.#branches.update(this.id, place.branches, isBusy);
    this.#showFigures(message, answer ? answer.speed?.figures() : message.figures, place.hasModel);
    const [text, isBad] = noteOf(message, answer);
    this.#note.hidden = !text;
    this.#note.classList.toggle("bad", isBad);
    setText(this.#note, text);
    this.#offer(choicesFor(message, place));
  }

  #showText(answer: Answer | null): void {
    this.#body.hidden = !this.#text && answer === null;
    if (this.role !== "assistant") return setText(this.#body, this.#text);
    renderMarkdown(this.#body, this.#text, answer === null);
    const isThinking = answer?.message.thinking?.seconds === null;
    this.#body.classList.toggle("growing", answer !== null && !answer.waitsUntil && !isThinking);
    this.#body.setAttribute("aria-busy", String(answer !== null));
  }

  #showFigures({ model }: Message, figures: Figures | null | undefined, hasModel: boolean): void {
    const texts = [hasModel ? model : "", figures ? figuresText(figures) : ""];
    setText(this.#figures, texts.filter(Boolean).join(" · "));
    if (figures?.prompt) this.#figures.title = promptText(figures.prompt, figures);
  }

  /** Buttons are replaced only when they change, so that they keep the focus. */
  #offer(choices: Choice[]): void {
    if (choices.join() === this.#offered) return;
    this.#offered = choices.join();
    const { actions, id } = this;
    const buttons = {
      copy: () => copyButton(() => this.#text),
      edit: () => iconButton("pencil", "Edit and send again", () => this.edit()),
      regenerate: () => iconButton("again", "Answer again", () => actions.regenerate(id)),
      retry: () => textButton("Try again", () => actions.regenerate(id)),
      now: () => textButton("Try now", () => actions.tryNow()),
      goOn: () => textButton("Go on without the oldest", () => actions.goOn()),
      anew: () => textButton("New conversation", () => actions.startAnew()),
    };
    this.#buttons.replaceChildren(...choices.map((name) => buttons[name]()));
  }

  focusArrow(step: number): void {
    this.#branches.focus(step);
  }

  /** Replace the text by a field, until it is sent or cancelled. */
  edit(): void {
    const leave = () => {
      form.replaceWith(this.#body);
      this.#foot.hidden = false;
      this.#showText(null);
    };
    const form = editForm(this.#text, (text) => this.actions.edit(this.id, text), leave);
    this.#body.replaceWith(form);
    this.#foot.hidden = true;
    const field = form.querySelector("textarea");
    field?.focus();
    field?.setSelectionRange(this.#text.length, this.#text.length);
  }
}

type Choice = "copy" | "edit" | "regenerate" | "retry" | "now" | "goOn" | "anew";

function choicesFor(message: Message, { answer, isLast, isBusy, ways }: Place): Choice[] {
  if (answer) return answer.waitsUntil ? ["now"] : [];
  const choices: Choice[] = message.text ? ["copy"] : [];
  if (isBusy || message.role === "tool") return choices;
  if (message.role === "user") return [...choices, "edit"];
  const isFull = isLast && message.finish === "context";
  if (isFull) choices.unshift(...ways);
  const isAnswered = ["done", "stopped"].includes(message.state ?? "") && !isEmpty(message);
  if (isAnswered) return [...choices, "regenerate"];
  const isRetryUseful = isLast && !choices.includes("goOn");
  return isRetryUseful ? [...choices, "retry"] : choices;
}

/** The note below an answer, and whether it is an error. */
function noteOf(message: Message, answer: Answer | null): [text: string, isBad: boolean] {
  if (answer?.waitsUntil) {
    const seconds = Math.max(0, Math.ceil((answer.waitsUntil - Date.now()) / 1000));
    return [`The server is busy. Trying again in ${seconds} s.`, false];
  }
  if (answer || message.role !== "assistant") return ["", false];
  if (message.state === "failed" && message.finish === "context")
    return [`The context is full: ${lowered(message.error ?? "")}`, true];
  if (message.state === "failed") return [message.error || "No answer.", true];
  if (message.state === "stopped")
    return [isEmpty(message) && !message.thinking ? "Stopped before it began." : "Stopped.", false];
  if (isInOtherTab(message)) return ["Another tab is receiving this answer.", false];
  if (message.state === "interrupted" || message.state === "streaming")
    return ["The page was closed before the answer was complete.", false];
  return [ENDS[message.finish ?? ""] ?? (isEmpty(message) ? "The answer is empty." : ""), false];
}

function lowered(sentence: string): string {
  return sentence.charAt(0).toLowerCase() + sentence.slice(1);
}

function promptText(prompt: number, { kept, first }: Figures): string {
  const read = kept ? `, ${kept.toLocaleString("en")} of them reused from the cache` : "";
  return `Prompt of ${prompt.toLocaleString("en")} tokens${read}${first === null ? "" : `; first token after ${secondsText(first)}`}`;
}
