// Announcements for screen readers: an answer sentence by sentence, and how it ended.

import { byId } from "../../shared/elements.ts";

import type { Answer } from "./answers.ts";

const region = byId("spoken");
const said = new WeakMap<Answer, number>(); // answer -> length of the text that was announced

function say(text: string): void {
  region.textContent = text;
}

export function sayProgress(answer: Answer): void {
  const from = said.get(answer) ?? 0;
  if (from === 0 && answer.waitsUntil) return say("The server is busy. Waiting.");
  const fresh = answer.message.text.slice(from);
  const end = answer.message.state === "streaming" ? lastSentenceEnd(fresh) : fresh.length;
  if (end > 0) {
    said.set(answer, from + end);
    say(fresh.slice(0, end));
  } else if (answer.message.error) {
    say(answer.message.error);
  }
}

function lastSentenceEnd(text: string): number {
  const end = [...text.matchAll(/[.!?…:]\s|\n/g)].at(-1);
  return end ? end.index + 1 : 0;
}
