// Short messages above the message field, shown for some seconds or until they are dismissed.

import { byId, iconButton, make } from "./elements.js";

const SECONDS = 12;

/** `action`: [label of a button, function]. */
export function notice(text, action = null) {
  const element = make("p", { class: "notice", role: "status" }, make("span", {}, text));
  if (action) {
    element.append(make("button", { type: "button", onclick: () => { element.remove(); action[1](); } }, action[0]));
  }
  element.append(iconButton("close", "Dismiss", () => element.remove()));
  byId("notices").replaceChildren(element);
  setTimeout(() => element.remove(), SECONDS * 1000);
}
