// Settings of a conversation: which there are, what is wrong with a value, and the body of a request.

/** Empty ones are the server's to choose. */
export const FIELDS = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.1, hint: "0 takes the likeliest token each time" },
  { name: "top_p", label: "Top p", min: 0.01, max: 1, step: 0.05, hint: "of the likeliest tokens, as many as make up this share" },
  { name: "top_k", label: "Top k", min: 0, step: 1, hint: "of so many of the likeliest tokens" },
  { name: "min_p", label: "Min p", min: 0, max: 1, step: 0.01, hint: "none less likely than this part of the likeliest" },
  { name: "max_tokens", label: "Most tokens", min: 1, step: 1, hint: "where an answer ends at the latest" },
  { name: "seed", label: "Seed", min: 0, max: 2 ** 53 - 1, step: 1, hint: "the same seed draws the same answer" },
  { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: 0.1, hint: "against tokens that the answer has" },
  { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: 0.1, hint: "the more, the more often it has them" },
  { name: "repetition_penalty", label: "Repetition penalty", min: 0.1, max: 10, step: 0.05, hint: "1 is none; counts the prompt too" },
];

/** What is wrong with a field's text, in a sentence; "" where nothing is. */
export function wrongWith(field, text) {
  if (text.trim() === "") return "";
  const number = Number(text);
  if (!Number.isFinite(number)) return `${field.label} is a number.`;
  if (Number.isInteger(field.step) && !Number.isInteger(number)) return `${field.label} is a whole number.`;
  if (number < field.min) return `${field.label} is ${field.min} or more.`;
  if (number > (field.max ?? Infinity)) return `${field.label} is ${field.max} or less.`;
  return "";
}

/** The request that asks for the next answer: all messages before `until`, and what the user set. */
export function requestBody(conversation, model, until) {
  const messages = conversation.system.trim() ? [{ role: "system", content: conversation.system }] : [];
  for (const message of conversation.messages) {
    if (message.id === until) break;
    if (!message.text) continue; // an answer that never came
    const last = messages.at(-1);
    // Templates want turns: where an answer is missing, two questions are one.
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
