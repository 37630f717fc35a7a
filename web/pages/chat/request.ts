// A conversation -> the body of the request for its next answer.

import { textOf } from "./attachments.ts";
import { splitPath } from "./context.ts";
import { FIELDS } from "./settings_fields.ts";
import type { Conversation, Message } from "./store.ts";
import { isEmpty } from "./tree.ts";

type Part = { type: "text"; text: string } | { type: "image_url"; image_url: { url: string } };
type Sent = { role: string; parts: Part[]; tool_calls?: object[]; tool_call_id?: string };

/** The messages before `until` that still fit into the context, and the settings. */
export function requestBody(conversation: Conversation, model: string, until: string): object {
  const { sent } = splitPath(conversation);
  const messages = sentMessages(
    sent.slice(
      0,
      sent.findIndex(({ id }) => id === until),
    ),
  );
  if (conversation.system.trim()) messages.unshift({ role: "system", parts: [textPart(conversation.system)] });
  const body: Record<string, unknown> = {
    model,
    messages: messages.map(withContent),
    stream: true,
    stream_options: { include_usage: true },
  };
  if (conversation.tools.trim()) body.tools = JSON.parse(conversation.tools); // checked when it was written or imported
  for (const { name } of FIELDS) {
    const value = conversation.settings[name];
    if (typeof value === "number") body[name] = value;
  }
  return body;
}

function sentMessages(messages: Message[]): Sent[] {
  const sent: Sent[] = [];
  for (const message of messages) {
    if (isEmpty(message)) continue;
    const last = sent.at(-1);
    const calls = message.calls?.map(({ id, ...call }) => ({ id, type: "function", function: call }));
    // Chat templates need alternating roles: without an answer between them, two questions are joined.
    if (message.role === "user" && last?.role === "user") last.parts.push(...partsOf(message));
    else sent.push({ role: message.role, parts: partsOf(message), tool_calls: calls, tool_call_id: message.call });
  }
  return sent;
}

function partsOf({ text, attachments = [] }: Message): Part[] {
  const parts = attachments.map((each): Part => {
    return each.kind === "image" ? { type: "image_url", image_url: { url: each.data } } : textPart(textOf(each));
  });
  return text ? [...parts, textPart(text)] : parts;
}

function textPart(text: string): Part {
  return { type: "text", text };
}

/** Text alone is sent as a string, which all servers take. */
function withContent({ parts, ...message }: Sent): object {
  const texts = parts.flatMap((part) => (part.type === "text" ? part.text : []));
  return { ...message, content: texts.length === parts.length ? texts.join("\n\n") : parts };
}
