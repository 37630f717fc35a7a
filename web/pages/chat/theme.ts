// Light, dark or the system's theme; stored for all tabs. (`early_theme.js` sets it before the page is drawn.)

import { byId, make } from "../../shared/elements.ts";
import { browserStorage, keep } from "./storage.ts";

const KEY = "pteron.theme";
const CHOICES = { system: "System", light: "Light", dark: "Dark" };

export function offerThemes(): void {
  const read = () => {
    const stored = browserStorage?.getItem(KEY);
    return stored === "light" || stored === "dark" ? stored : "system";
  };
  const inputs = Object.entries(CHOICES).map(([name, label]) =>
    make(
      "label",
      make("input", { type: "radio", name: "theme", value: name, onchange: () => choose(name) }),
      make("span", label),
    ),
  );
  byId("theme").replaceChildren(...inputs);
  const show = (name: string) => {
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    for (const input of byId("theme").querySelectorAll("input")) input.checked = input.value === name;
  };
  const choose = (name: string) => {
    show(name);
    keep(browserStorage, KEY, name);
  };
  window.addEventListener("storage", (event) => {
    if (event.key === KEY) show(read());
  });
  show(read());
}
