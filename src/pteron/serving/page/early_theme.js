// Sets the chosen theme before the page is drawn, so that it does not flash in another.
"use strict";

try {
  const chosen = localStorage.getItem("pteron.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Without storage: the system's theme.
}
