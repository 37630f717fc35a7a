// Short sentences above the field, which go by themselves or when they are dismissed.

import { byId, iconButton, make } from "./elements.js";

const SECONDS = 12;

/** `deed`: [what a button says, what it does]. */
export function notice(text, deed = null) {
  const element = make("p", { class: "notice", role: "status" }, make("span", {}, text));
  if (deed) {
    element.append(make("button", { type: "button", onclick: () => { element.remove(); deed[1](); } }, deed[0]));
  }
  element.append(iconButton("close", "Dismiss", () => element.remove()));
  byId("notices").replaceChildren(element);
  setTimeout(() => element.remove(), SECONDS * 1000);
}
