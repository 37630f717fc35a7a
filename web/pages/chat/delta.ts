// The parts of a streamed answer -> a message: its text, its reasoning and its tool calls.

import type { Delta } from "./server.ts";
import type { Message } from "./store.ts";

/** Add what has arrived; `now`: milliseconds. */
export function addDelta(message: Message, delta: Delta, now = Date.now()): void {
  const thought = delta.reasoning_content ?? delta.reasoning; // servers differ
  if (thought) {
    message.thinking ??= { text: "", began: now, seconds: null };
    message.thinking.text += thought;
  }
  if (delta.content || delta.tool_calls?.length) endThinking(message, now);
  message.text += delta.content ?? "";
  for (const part of delta.tool_calls ?? []) addCall(message, part);
}

export function endThinking({ thinking }: Message, now = Date.now()): void {
  if (thinking) thinking.seconds ??= (now - thinking.began) / 1000;
}

function addCall(message: Message, part: NonNullable<Delta["tool_calls"]>[number]): void {
  message.calls ??= [];
  const index = part.index ?? message.calls.length;
  message.calls[index] ??= { id: "", name: "", arguments: "" };
  const call = message.calls[index];
  if (part.id) call.id = part.id;
  call.name += part.function?.name ?? "";
  call.arguments += part.function?.arguments ?? "";
}

/** The arguments of a call, indented if they are complete. */
export function prettyArguments(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
