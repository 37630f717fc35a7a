// A conversation that has filled the model's context goes on without its oldest turns.

import { type Attachment, textOf } from "./attachments.ts";
import type { Figures } from "./speed.ts";
import type { Conversation, Message } from "./store.ts";
import { isEmpty, pathOf } from "./tree.ts";

const KEPT = 2 / 3; // of the characters: room for the next answers
const PICTURE = 4400; // characters that a picture counts as: SmolVLM makes up to 1,088 tokens of one

/** Whether an answer that reached a limit filled the context. The API has the same reason for all limits. */
export function isFull({ prompt, tokens }: Figures, context: number | null): boolean {
  return context !== null && prompt !== null && prompt + tokens >= context;
}

/** The messages of the shown branch: those that are no longer sent, and those that are. */
export function splitPath(conversation: Conversation): { dropped: Message[]; sent: Message[] } {
  const path = pathOf(conversation);
  const count = path.findIndex(({ id }) => id === conversation.dropped?.last) + 1;
  return { dropped: path.slice(0, count), sent: path.slice(count) };
}

/** The last message to drop, at the end of a turn, so that enough room is left; null if nothing can be dropped. A
 * question without an answer is kept. */
export function lastToDrop(sent: Message[]): string | null {
  const last = sent.at(-1);
  const end = last && isEmpty(last) ? sent.findLastIndex(({ role }) => role === "user") : sent.length;
  const whole = sent.reduce((sum, message) => sum + lengthOf(message), 0);
  let rest = whole;
  for (const [index, message] of sent.slice(0, end).entries()) {
    rest -= lengthOf(message);
    const isTurnEnd = index + 1 === sent.length || sent[index + 1].role === "user";
    if (isTurnEnd && (rest <= KEPT * whole || index + 1 === end)) return message.id;
  }
  return null;
}

function lengthOf({ text, attachments = [] }: Message): number {
  const sizes = attachments.map((each: Attachment) => (each.kind === "image" ? PICTURE : textOf(each).length));
  return sizes.reduce((sum, size) => sum + size, text.length);
}
