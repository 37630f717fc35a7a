// The settings of a conversation, the check of their values, and the body of a request.

/** An empty field uses the server's default. */
export const FIELDS = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.1, hint: "0 always takes the most likely token" },
  { name: "top_p", label: "Top p", min: 0.01, max: 1, step: 0.05, hint: "sample from the most likely tokens with this total probability" },
  { name: "top_k", label: "Top k", min: 0, step: 1, hint: "sample from this many of the most likely tokens" },
  { name: "min_p", label: "Min p", min: 0, max: 1, step: 0.01, hint: "skip tokens less likely than this share of the first" },
  { name: "max_tokens", label: "Max tokens", min: 1, step: 1, hint: "maximum length of an answer" },
  { name: "seed", label: "Seed", min: 0, max: 2 ** 53 - 1, step: 1, hint: "the same seed gives the same answer" },
  { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: 0.1, hint: "above 0: fewer tokens that the answer already has" },
  { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: 0.1, hint: "the same, stronger for each repetition" },
  { name: "repetition_penalty", label: "Repetition penalty", min: 0.1, max: 10, step: 0.05, hint: "above 1: fewer repetitions, also of the prompt; 1: off" },
];

/** The problem with a field's text, as a sentence; "" if it is valid. */
export function problemWith(field, text) {
  if (text.trim() === "") return "";
  const number = Number(text);
  if (!Number.isFinite(number)) return `${field.label} must be a number.`;
  if (Number.isInteger(field.step) && !Number.isInteger(number)) return `${field.label} must be a whole number.`;
  if (number < field.min) return `${field.label} must be ${field.min} or more.`;
  if (number > (field.max ?? Infinity)) return `${field.label} must be ${field.max} or less.`;
  return "";
}

/** The body of the request for an answer: the messages before `until`, and the settings. */
export function requestBody(conversation, model, until) {
  const messages = conversation.system.trim() ? [{ role: "system", content: conversation.system }] : [];
  for (const message of conversation.messages) {
    if (message.id === until) break;
    if (!message.text) continue; // an answer that failed
    const last = messages.at(-1);
    // Chat templates need alternating roles: without an answer between them, two questions are joined.
    if (last?.role === message.role) last.content += `\n\n${message.text}`;
    else messages.push({ role: message.role, content: message.text });
  }
  const body = { model, messages, stream: true, stream_options: { include_usage: true } };
  for (const { name } of FIELDS) {
    const value = conversation.settings[name];
    if (typeof value === "number") body[name] = value;
  }
  return body;
}
