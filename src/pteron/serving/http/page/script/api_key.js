// The dialog for the API key: one dialog for all requests that need a key.

import { byId, setText } from "./elements.js";
import { setKey } from "./server.js";

let asking = null;

/** Resolves to whether the user entered a key. */
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
