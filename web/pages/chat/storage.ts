// The browser's storage. A browser may refuse it to a page, and it may be full.

function opened(name: "localStorage" | "sessionStorage"): Storage | null {
  try {
    return window[name];
  } catch {
    return null;
  }
}

export const browserStorage = opened("localStorage"); // shared by all tabs
export const tabStorage = opened("sessionStorage"); // gone when the tab is closed

/** Store a text, which a reload of the page then keeps; an empty one is removed. */
export function keep(storage: Storage | null, key: string, text: string): void {
  try {
    if (text) storage?.setItem(key, text);
    else storage?.removeItem(key);
  } catch {
    // It is full: a reload loses the text.
  }
}
