import type { ErrorCode } from "./api.ts";

/** An error whose message is a sentence for people. */
export class PteronError extends Error {
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string) {
    super(message);
    this.name = "PteronError";
    this.code = code;
  }
}

/** A value in a message. */
export function shown(value: unknown): string {
  return typeof value === "string" ? `"${value.slice(0, 40)}"` : String(value);
}
