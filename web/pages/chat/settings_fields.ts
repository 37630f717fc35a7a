// The settings of a conversation, and the check of their values.

export type Field = { name: string; label: string; min: number; max?: number; step: number; hint: string };

const field = (name: string, label: string, hint: string, step: number, min: number, max?: number): Field => {
  return { name, label, hint, step, min, max };
};

/** An empty field uses the server's default. */
export const FIELDS = [
  field("temperature", "Temperature", "0 always takes the most likely token", 0.1, 0, 2),
  field("top_p", "Top p", "sample from the most likely tokens with this total probability", 0.05, 0.01, 1),
  field("top_k", "Top k", "sample from this many of the most likely tokens", 1, 0),
  field("min_p", "Min p", "skip tokens less likely than this share of the first", 0.01, 0, 1),
  field("max_tokens", "Max tokens", "maximum length of an answer", 1, 1),
  field("seed", "Seed", "the same seed gives the same answer", 1, 0, 2 ** 53 - 1),
  field("presence_penalty", "Presence penalty", "above 0: fewer tokens that the answer already has", 0.1, -2, 2),
  field("frequency_penalty", "Frequency penalty", "the same, stronger for each repetition", 0.1, -2, 2),
  field(
    "repetition_penalty",
    "Repetition penalty",
    "above 1: fewer repetitions, also of the prompt; 1: off",
    0.05,
    0.1,
    10,
  ),
];

/** The problem with a field's text, as a sentence; "" if it is valid. */
export function problemWith(field: Field, text: string): string {
  if (text.trim() === "") return "";
  const number = Number(text);
  if (!Number.isFinite(number)) return `${field.label} must be a number.`;
  if (Number.isInteger(field.step) && !Number.isInteger(number)) return `${field.label} must be a whole number.`;
  if (number < field.min) return `${field.label} must be ${field.min} or more.`;
  if (number > (field.max ?? Infinity)) return `${field.label} must be ${field.max} or less.`;
  return "";
}

/** The problem with the text of the tools; "" if it is a list of tools, or empty. */
export function problemWithTools(text: string): string {
  if (text.trim() === "") return "";
  try {
    return Array.isArray(JSON.parse(text)) ? "" : "Tools must be a list.";
  } catch (error) {
    return `Tools must be JSON: ${(error as Error).message}.`;
  }
}
