/** What a click on the status item offers. */

import {commands, type QuickPickItem, QuickPickItemKind, window} from "vscode";

import {MINUTES} from "./snooze";
import {say, type State} from "./state";

interface Entry extends QuickPickItem {
  readonly command?: readonly [string, ...unknown[]];
}

/** What shows something else than the text one was in. */
const OPENS = ["suture.choosePath", "suture.openSettings", "suture.showLog"];

/** Let the user choose, and do it. */
export async function showMenu(state: State): Promise<void> {
  const title = `Suture: ${say(state, Date.now()).sentence}`;
  const chosen = await window.showQuickPick(entries(state), {title, placeHolder: "What to do"});
  if (!chosen?.command) return;
  await commands.executeCommand(...chosen.command);
  // Who clicked on the item would go on there, and not in the text.
  if (!OPENS.includes(chosen.command[0])) {
    await commands.executeCommand("workbench.action.focusActiveEditorGroup");
  }
}

function entries(state: State): Entry[] {
  return [
    ...(state.running.is === "missing" ? setUp() : []),
    ...switches(state),
    ...snoozing(state),
    separator(),
    entry(
      hasSuggestion(state) ? "$(info) Explain this suggestion" : "$(question) Why nothing came",
      "suture.explain",
    ),
    entry("$(debug-restart) Restart", "suture.restart"),
    entry("$(output) Show log", "suture.showLog"),
    entry("$(gear) Settings", "suture.openSettings"),
  ];
}

/** Whether one may have come: where it runs, and nothing speaks against it. */
function hasSuggestion({running, status}: State): boolean {
  return running.is === "up" && !!status && !status.reason;
}

function setUp(): Entry[] {
  return [
    entry("$(clippy) Copy the command that installs Suture", "suture.copyInstallCommand"),
    entry("$(folder-opened) Choose the program…", "suture.choosePath"),
    entry("$(refresh) Look for it again", "suture.restart"),
    separator(),
  ];
}

function switches({isOn, language, isLanguageOn}: State): Entry[] {
  const everything = entry(
    isOn ? "$(circle-slash) Turn suggestions off" : "$(check) Turn suggestions on",
    "suture.toggleEverything",
  );
  if (!language) return [everything];
  const label = isLanguageOn
    ? `$(circle-slash) Turn suggestions off for ${language}`
    : `$(check) Turn suggestions on for ${language}`;
  return [everything, entry(label, "suture.toggleLanguage")];
}

function snoozing({snoozedUntil}: State): Entry[] {
  if (snoozedUntil > Date.now()) return [entry("$(bell) End the snooze", "suture.snoozeFor", 0)];
  return MINUTES.map((n) => entry(`$(bell-slash) Snooze for ${n} minutes`, "suture.snoozeFor", n));
}

function entry(label: string, ...command: [string, ...unknown[]]): Entry {
  return {label, command};
}

function separator(): Entry {
  return {label: "", kind: QuickPickItemKind.Separator};
}
