// Announcements for screen readers: an answer sentence by sentence, and how it ended.

import { byId } from "./elements.js";

const region = byId("spoken");
const said = new WeakMap(); // answer -> length of the text that was announced

export function say(text) {
  region.textContent = text;
}

export function sayProgress(answer) {
  const from = said.get(answer) ?? 0;
  if (from === 0 && answer.waitsUntil) return say("The server is busy. Waiting.");
  const fresh = answer.text.slice(from);
  const end = answer.state === "streaming" ? lastSentenceEnd(fresh) : fresh.length;
  if (end > 0) {
    said.set(answer, from + end);
    say(fresh.slice(0, end));
  } else if (answer.error) {
    say(answer.error);
  }
}

function lastSentenceEnd(text) {
  const ends = [...text.matchAll(/[.!?…:]\s|\n/g)];
  return ends.length ? ends.at(-1).index + 1 : 0;
}
