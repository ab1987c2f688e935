/** Accepting a part, and hiding: VS Code's own commands, and then the server is told. */

import {commands, type TextEditor, window} from "vscode";

import {DID_PARTIALLY_ACCEPT, DID_REJECT} from "./protocol";
import type {Seen} from "./seen";

const COMMANDS = {
  word: "editor.action.inlineSuggest.acceptNextWord",
  line: "editor.action.inlineSuggest.acceptNextLine",
} as const;

type Notify = (method: string, params: object) => void;

/** Accept the next word or line of what is shown, whosever it is. */
export async function acceptPart(kind: keyof typeof COMMANDS, seen: Seen, notify: Notify): Promise<void> {
  const editor = window.activeTextEditor;
  const before = offset(editor);
  await commands.executeCommand(COMMANDS[kind]);
  const acceptedLength = offset(editor) - before;
  if (editor && seen.isIn(editor.document) && acceptedLength > 0) {
    notify(DID_PARTIALLY_ACCEPT, {textDocument: named(editor), kind, acceptedLength});
  }
}

/** Hide what is shown: where it was, nothing comes by itself until the text changes. */
export async function hide(seen: Seen, notify: Notify): Promise<void> {
  const editor = window.activeTextEditor;
  await commands.executeCommand("editor.action.inlineSuggest.hide");
  if (editor && seen.isIn(editor.document)) {
    notify(DID_REJECT, {textDocument: named(editor)});
  }
}

function named({document}: TextEditor): {uri: string; version: number} {
  return {uri: document.uri.toString(), version: document.version};
}

function offset(editor: TextEditor | undefined): number {
  return editor ? editor.document.offsetAt(editor.selection.active) : 0;
}
