/** Puts the parts together: what the user does, what changes, and what is shown of it. */

import {commands, type ExtensionContext, type LogOutputChannel, window, workspace} from "vscode";

import {acceptPart, hide} from "./accepting";
import {CONFIGURED} from "./client";
import {ExplanationPage} from "./explanation_page";
import {showMenu} from "./menu";
import {chooseProgram, copyInstallCommand, forgetMissing, tellMissing} from "./missing";
import type {Explained, Status} from "./protocol";
import {Session} from "./session";
import {allOptions, isLanguageOn, isOn, SECTION, toggleEverything, toggleLanguage} from "./settings";
import {MINUTES, Snooze} from "./snooze";
import {say, type State} from "./state";
import {StatusItem} from "./status_item";

/** What other extensions may read: the last `suture/status`. */
export interface Api {
  readonly status: Status | undefined;
}

let session: Session | undefined;

export function activate(context: ExtensionContext): Api {
  const log = window.createOutputChannel("Suture", {log: true});
  const own = (session = new Session(log, context.extension.id));
  const item = new StatusItem();
  const page = new ExplanationPage();
  const snooze = new Snooze(own, () => show());
  const state = (): State => stateOf(own, snooze);
  const show = (): void => item.show(say(state(), Date.now()));

  context.subscriptions.push(
    log, own, item, page, snooze,
    own.onDidChange(() => {
      show();
      remember(own, context);
    }),
    own.onDidComeUp(() => snooze.keep()),
    own.onDidFail(() => tellFailing(log)),
    window.onDidChangeActiveTextEditor(show),
    workspace.onDidGrantWorkspaceTrust(() => {
      own.notify(CONFIGURED, {settings: {[SECTION]: allOptions()}});
      void own.start();
    }),
    workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration(`${SECTION}.path`)) void own.restart();
      else if (event.affectsConfiguration(`${SECTION}.enable`) && isOn()) void own.start();
      if (event.affectsConfiguration(SECTION)) show();
    }),
    ...Object.entries({
      menu: () => showMenu(state()),
      acceptWord: () => acceptPart("word", own.seen, (...told) => own.notify(...told)),
      acceptLine: () => acceptPart("line", own.seen, (...told) => own.notify(...told)),
      hide: () => hide(own.seen, (...told) => own.notify(...told)),
      toggleEverything,
      toggleLanguage: () => toggleHere(),
      snoozeFor: (minutes?: number) => snoozeFor(snooze, minutes),
      explain: () => explain(own, page, state()),
      restart: () => own.restart(),
      showLog: () => log.show(),
      openSettings: () => commands.executeCommand("workbench.action.openSettings", `${SECTION}.`),
      choosePath: chooseProgram,
      copyInstallCommand,
    }).map(([name, run]) => commands.registerCommand(`${SECTION}.${name}`, run)),
  );
  show();
  void own.start();
  return {
    get status() {
      return own.status;
    },
  };
}

export async function deactivate(): Promise<void> {
  await session?.stop();
}

function stateOf(own: Session, snooze: Snooze): State {
  const language = window.activeTextEditor?.document.languageId;
  return {
    running: own.running,
    status: own.status,
    isOn: isOn(),
    language,
    isLanguageOn: !language || isLanguageOn(language),
    snoozedUntil: snooze.until,
  };
}

/** Say once that the program is missing, and once more where it was found and is lost. */
function remember({running}: Session, {globalState}: ExtensionContext): void {
  if (running.is === "missing") void tellMissing(running.why, globalState);
  if (running.is === "up") void forgetMissing(globalState);
}

async function tellFailing(log: LogOutputChannel): Promise<void> {
  const message = "suture lsp ends again and again. It goes on being started, ever more seldom.";
  const [open, restart] = ["Show Log", "Restart Now"];
  const chosen = await window.showWarningMessage(message, open, restart);
  if (chosen === open) log.show();
  if (chosen === restart) await commands.executeCommand("suture.restart");
}

async function toggleHere(): Promise<void> {
  const language = window.activeTextEditor?.document.languageId;
  if (language) await toggleLanguage(language);
}

async function snoozeFor(snooze: Snooze, minutes: number | undefined): Promise<void> {
  if (minutes !== undefined) return snooze.set(minutes);
  const picks = MINUTES.map((n) => ({label: `${n} minutes`, n}));
  const chosen = await window.showQuickPick(picks, {placeHolder: "No suggestions for"});
  if (chosen) await snooze.set(chosen.n);
}

async function explain(own: Session, page: ExplanationPage, state: State): Promise<void> {
  const explained = await own.command<Explained>("explainLast");
  await page.show(explained ?? unexplained(state));
}

/** Where no server runs, what we know ourselves is the explanation. */
function unexplained(state: State): Explained {
  const message = say(state, Date.now()).sentence.replace(/\.$/, "");
  const status: Status = {kind: "Inactive", busy: false, message, reason: null};
  return {suggestion: null, reason: null, message, source: "", took_ms: 0, report: {}, files: [], status};
}
