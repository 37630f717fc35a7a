// Short messages above the message field, shown for some seconds or until they are dismissed.

import { byId, iconButton, make, textButton } from "../../shared/elements.ts";

const SECONDS = 12;

/** `action`: the label of a button, and what it does. */
export function notice(text: string, action: [string, () => void] | null = null): void {
  const element = make("p.notice", { role: "status" }, make("span", text));
  const act = () => {
    element.remove();
    action?.[1]();
  };
  if (action) element.append(textButton(action[0], act));
  element.append(iconButton("close", "Dismiss", () => element.remove()));
  byId("notices").replaceChildren(element);
  setTimeout(() => element.remove(), SECONDS * 1000);
}
