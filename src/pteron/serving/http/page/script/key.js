// The question for an API key: asked once, however many requests want one.

import { byId, setText } from "./elements.js";
import { setKey } from "./server.js";

let asking = null;

/** Promises whether the user gave a key. */
export function askKey(reason) {
  asking ??= ask(reason).finally(() => { asking = null; });
  return asking;
}

function ask(reason) {
  const dialog = byId("key"), field = byId("key-text");
  setText(byId("key-reason"), reason);
  field.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  field.focus();
  return new Promise((resolve) => {
    byId("key-cancel").onclick = () => dialog.close();
    byId("key-use").value = "use";
    dialog.onclose = () => {
      const key = field.value.trim();
      const isGiven = dialog.returnValue === "use" && key !== "";
      if (isGiven) setKey(key);
      field.value = "";
      resolve(isGiven);
    };
  });
}
