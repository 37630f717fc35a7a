// A conversation with a language model; without a chat template, a text that the model continues.

import type { Message, Program } from "../../player/api.ts";
import { byId, make } from "../../shared/elements.ts";
import { renderMarkdown } from "../../shared/markdown.ts";
import { clearError, loadSite, showError } from "../common/load.ts";

const field = byId<HTMLTextAreaElement>("text");
let messages: Message[] = [];
let stop: AbortController | null = null;

/** Ask for an answer and show it as it arrives. */
async function answer(program: Program, text: string): Promise<void> {
  const isChat = program.language?.chat === true;
  const shown = make(isChat ? "div.turn text" : "div.turn story");
  const asked = isChat ? make("div.turn user", text) : null;
  const before = messages;
  const own: Message[] = [...before, { role: "user", content: text }];
  messages = own;
  if (!isChat) shown.append(make("span.given", text));
  clearError();
  byId("thread").append(...(asked ? [asked, shown] : [shown]));
  stop = new AbortController();
  setRunning(true);
  const options = {
    maxTokens: Number(byId<HTMLInputElement>("tokens").value),
    temperature: Number(byId<HTMLInputElement>("temperature").value),
  };
  let said = "";
  let count = 0;
  let full = false;
  const started = performance.now();
  try {
    for await (const piece of program.generate(isChat ? own : text, { ...options, signal: stop.signal })) {
      said += piece.text;
      if (piece.finishReason === "context") full = true;
      count++;
      if (isChat) renderMarkdown(shown, said, false);
      else shown.append(piece.text);
      byId("speed").textContent = `${(count / ((performance.now() - started) / 1000)).toFixed(1)} tokens/s`;
      byId("composer").scrollIntoView({ block: "end" });
    }
    if (isChat) renderMarkdown(shown, said);
    if (full) {
      const advice = isChat ? "begin a new conversation" : "begin a new text";
      byId("thread").append(make("p.quiet", `The context of ${program.language?.context} tokens is full: ${advice}.`));
    }
  } catch (error) {
    showError(error);
    if (!count) {
      // It was not taken, so it is no part of the conversation.
      asked?.remove();
      shown.remove();
      if (messages === own) messages = before;
      field.value ||= text;
    }
  }
  if (messages === own) own.push({ role: "assistant", content: said });
  setRunning(false);
}

function setRunning(isRunning: boolean): void {
  byId<HTMLButtonElement>("send").disabled = isRunning;
  byId("stop").hidden = !isRunning;
}

const program = await loadSite();
if (program) {
  byId("composer").hidden = false;
  const isChat = program.language?.chat === true;
  byId("send").textContent = isChat ? "Send" : "Continue";
  field.placeholder = isChat ? "Ask something" : "Begin a text";
  if (!isChat) field.value = "Once upon a time";
  byId<HTMLInputElement>("temperature").value = String(program.language?.sampling.temperature ?? 0.8);
  byId<HTMLFormElement>("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (!text || stop?.signal.aborted === false) return;
    if (isChat) field.value = "";
    answer(program, text).finally(() => {
      stop = null;
    });
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId<HTMLFormElement>("composer").requestSubmit();
  });
  byId("stop").addEventListener("click", () => stop?.abort());
  byId("new").addEventListener("click", () => {
    stop?.abort();
    messages = [];
    byId("thread").replaceChildren();
    field.focus();
  });
  field.focus();
}
