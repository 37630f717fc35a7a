// The dialog for the API key: one dialog for all requests that need a key.

import { byId, setText } from "../../shared/elements.ts";
import { setKey } from "./server.ts";

let asking: Promise<boolean> | null = null;

/** Resolves to whether the user entered a key. */
export function askKey(reason: string): Promise<boolean> {
  asking ??= ask(reason).finally(() => {
    asking = null;
  });
  return asking;
}

function ask(reason: string): Promise<boolean> {
  const dialog = byId<HTMLDialogElement>("key");
  const field = byId<HTMLInputElement>("key-text");
  setText(byId("key-reason"), reason);
  field.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  field.focus();
  return new Promise((resolve) => {
    byId("key-cancel").onclick = () => dialog.close();
    byId<HTMLButtonElement>("key-use").value = "use";
    dialog.onclose = () => {
      const key = field.value.trim();
      const isGiven = dialog.returnValue === "use" && key !== "";
      if (isGiven) setKey(key);
      field.value = "";
      resolve(isGiven);
    };
  });
}
