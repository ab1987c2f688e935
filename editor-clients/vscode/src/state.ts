/** How the extension does, as its status item and its menu say it. */

import type {Status} from "./protocol";

/** Of the program: there is none, it is off, it starts, it ended and is started again, it runs. */
export type Running =
  | {readonly is: "missing"; readonly why: string}
  | {readonly is: "off"}
  | {readonly is: "starting"}
  | {readonly is: "ended"; readonly why: string}
  | {readonly is: "up"};

export interface State {
  readonly running: Running;
  /** What the server said last. */
  readonly status: Status | undefined;
  readonly isOn: boolean;
  /** The language of the editor that has the focus, and whether suggestions come in it. */
  readonly language: string | undefined;
  readonly isLanguageOn: boolean;
  /** Milliseconds since 1970; in the past where nothing is snoozed. */
  readonly snoozedUntil: number;
}

export interface Saying {
  /** Beside the icon; empty where all is well. Of a fixed width while one types. */
  readonly short: string;
  readonly sentence: string;
  readonly icon: string;
  readonly severity: "none" | "warning" | "error";
}

/** Reasons that last: the others come and go with the keys, and are told in the tooltip alone. */
const LASTING: Readonly<Record<string, string>> = {
  LOADING: "loading",
  BUSY: "busy",
  NO_FIM: "model cannot fill",
  EXCLUDED: "excluded file",
  UNREACHABLE: "no server",
  AUTH: "key refused",
  ERROR: "error",
};
const SENTENCES: Readonly<Record<string, string>> = {
  LOADING: "The model is being loaded.",
  BUSY: "The server has too much to do.",
  NO_FIM: "The model cannot fill in text before other text.",
  EXCLUDED: "This file is excluded.",
  DISABLED: "Suggestions are off here.",
  MIDWORD: "The cursor is inside a word.",
  UNREACHABLE: "No server answers.",
  AUTH: "The server refuses the key.",
  ERROR: "The request failed.",
  EMPTY: "The model has nothing to add here.",
  DUPLICATE_SUFFIX: "What comes next stands there already.",
  LOW_CONFIDENCE: "The model is not sure enough.",
  DEADLINE: "The model was too slow.",
  BUDGET: "There is no room for a prompt.",
};

/** What is said of a state at a time: what the user did comes before what the server says. */
export function say(state: State, now: number): Saying {
  const {running} = state;
  if (!state.isOn) return inactive("off", "Suggestions are turned off.");
  if (running.is === "missing") {
    return {short: "not found", sentence: running.why, icon: "warning", severity: "warning"};
  }
  if (running.is === "starting") return busy("starting", "suture lsp is being started.");
  if (running.is === "ended") return failed("ended", running.why);
  if (state.snoozedUntil > now) {
    const minutes = Math.ceil((state.snoozedUntil - now) / 60_000);
    return inactive("snoozed", `Suggestions are snoozed for ${minutes} min more.`);
  }
  if (state.language && !state.isLanguageOn) {
    return inactive("off", `Suggestions are turned off for ${state.language}.`);
  }
  return state.status ? sayStatus(state.status) : busy("starting", "suture lsp was started.");
}

function sayStatus({kind, busy: isBusy, message, reason}: Status): Saying {
  const told = message ? sentenceOf(message) : "";
  const sentence = told || (reason && SENTENCES[reason]) || (reason ? `${reason}.` : "Ready.");
  const short = (reason && LASTING[reason]) ?? (reason || kind !== "Warning" ? "" : "settings");
  if (isBusy) return busy(short || "loading", sentence);
  if (kind === "Error") return failed(short, sentence);
  if (kind === "Warning") return {short, sentence, icon: "warning", severity: "warning"};
  if (kind === "Inactive") return inactive(short, sentence);
  return {short, sentence, icon: reason ? "dash" : "sparkle", severity: "none"};
}

function sentenceOf(message: string): string {
  // The name of a setting stays what one may look for.
  const isSetting = message.startsWith("suture.");
  const first = isSetting ? message.charAt(0) : message.charAt(0).toUpperCase();
  return first + message.slice(1) + (/[.!?]$/.test(message) ? "" : ".");
}

function inactive(short: string, sentence: string): Saying {
  return {short, sentence, icon: "circle-slash", severity: "none"};
}

function busy(short: string, sentence: string): Saying {
  return {short, sentence, icon: "loading~spin", severity: "none"};
}

function failed(short: string, sentence: string): Saying {
  return {short, sentence, icon: "error", severity: "error"};
}
