/** What is said where there is no program `suture`: once, with what to do. */

import {commands, env, type Memento, window} from "vscode";

import {choosePath} from "./settings";

const INSTALL = "pipx install '.[local]'";
const TOLD = "told that suture is missing";

/** Say so, unless it was said before on this machine. */
export async function tellMissing(why: string, memory: Memento): Promise<void> {
  if (memory.get(TOLD)) return;
  await memory.update(TOLD, true);
  const message = `${why} In a checkout of Suture run ${INSTALL}, or choose the program that you have.`;
  const [copy, choose] = ["Copy Command", "Choose the Program…"];
  const chosen = await window.showInformationMessage(message, copy, choose);
  if (chosen === copy) await copyInstallCommand();
  if (chosen === choose) await commands.executeCommand("suture.choosePath");
}

/** It was found: if it is lost again, that is told again. */
export async function forgetMissing(memory: Memento): Promise<void> {
  if (memory.get(TOLD)) await memory.update(TOLD, undefined);
}

export async function copyInstallCommand(): Promise<void> {
  await env.clipboard.writeText(INSTALL);
  window.setStatusBarMessage(`Copied: ${INSTALL}`, 5000);
}

/** Let the user choose the program, and set `suture.path`. */
export async function chooseProgram(): Promise<void> {
  const [chosen] = (await window.showOpenDialog({title: "The program suture", openLabel: "Use"})) ?? [];
  if (chosen) await choosePath(chosen.fsPath);
}
