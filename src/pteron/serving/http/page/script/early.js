// The colours that were chosen, before anything is drawn: so no page flashes in others.
"use strict";

try {
  const chosen = localStorage.getItem("pteron.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Without storage, the system's.
}
