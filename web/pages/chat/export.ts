// A conversation as a file: Markdown to read, JSON to import again.

import { make, newId } from "../../shared/elements.ts";
import { textOf } from "./attachments.ts";
import { prettyArguments } from "./delta.ts";
import { problemWithTools } from "./settings_fields.ts";
import { type Conversation, type Message, parsed, ROLES } from "./store.ts";

/** The messages of one branch. */
export function toMarkdown(title: string, messages: Message[]): string {
  return `# ${title}\n\n${messages.map(section).join("\n\n")}\n`;
}

function section({ role, model, text, attachments = [], thinking, calls = [] }: Message): string {
  const files = attachments.map((each) => (each.kind === "image" ? `![${each.name}](${each.data})` : textOf(each)));
  const thought = thinking ? [`<details><summary>Thinking</summary>\n\n${thinking.text.trim()}\n\n</details>`] : [];
  const called = calls.map(
    (call) => `Calls \`${call.name}\`:\n\n\`\`\`json\n${prettyArguments(call.arguments)}\n\`\`\``,
  );
  const heading = `## ${ROLES[role]}${model ? ` (${model})` : ""}`;
  return [heading, ...thought, ...files, ...(text ? [text] : []), ...called].join("\n\n");
}

export function download(name: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text]));
  make("a", { href: address, download: name.replace(/[\\/:*?"<>|]/g, "_") }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

type Shape = (value: unknown) => boolean;

const isText: Shape = (value) => typeof value === "string";
const isNumber: Shape = (value) => typeof value === "number";
const optional = (shape: Shape): Shape => {
  return (value) => value === undefined || value === null || shape(value);
};
const listOf = (shape: Shape): Shape => {
  return (value) => Array.isArray(value) && value.every(shape);
};
const fields = (shapes: Record<string, Shape>): Shape => {
  const isField = (value: object, [name, shape]: [string, Shape]) => shape(Reflect.get(value, name));
  return (value) =>
    typeof value === "object" && value !== null && Object.entries(shapes).every((each) => isField(value, each));
};

const isMessage = fields({
  role: (value) => isText(value) && Object.hasOwn(ROLES, value as string),
  attachments: optional(listOf(fields({ kind: isText, name: isText, size: isNumber, data: isText }))),
  thinking: optional(fields({ text: isText, seconds: optional(isNumber) })),
  calls: optional(listOf(fields({ id: isText, name: isText, arguments: isText }))),
  figures: optional(fields({ tokens: isNumber, first: optional(isNumber), rate: optional(isNumber) })),
  ...Object.fromEntries(["model", "state", "finish", "error"].map((name) => [name, optional(isText)])),
});
const isConversation = fields({
  title: isText,
  system: isText,
  tools: (value) => isText(value) && problemWithTools(value as string) === "",
  model: optional(isText),
  settings: fields({}),
  messages: listOf(isMessage),
  dropped: optional(fields({ last: isText })),
});

/** The conversation of an exported file, with an id of its own; null if it is not one. */
export function fromJson(text: string): Conversation | null {
  const imported = parsed(text, newId());
  return imported && isConversation(imported) ? { ...imported, changed: Date.now() } : null;
}
