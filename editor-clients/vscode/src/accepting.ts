/** Accepting a part, and hiding: VS Code's own commands, and then the server is told. */

import {commands, type InlineCompletionItem, type TextDocument, window} from "vscode";

import {DID_PARTIALLY_ACCEPT, DID_REJECT} from "./protocol";
import {lengthWritten, type Seen, textOf} from "./seen";

const COMMANDS = {
  word: "editor.action.inlineSuggest.acceptNextWord",
  line: "editor.action.inlineSuggest.acceptNextLine",
} as const;

type Notify = (method: string, params: object) => void;

/** Accept the next word or line of what is shown, whosever it is. */
export async function acceptPart(kind: keyof typeof COMMANDS, seen: Seen, notify: Notify): Promise<void> {
  const editor = window.activeTextEditor;
  // The item that the key takes a part of: the next one may be answered before we come to tell.
  const before = editor ? seen.itemsAt(editor).map((item) => ({item, length: lengthWritten(editor, item)})) : [];
  await commands.executeCommand(COMMANDS[kind]);
  for (const {item, length} of before) {
    const acceptedLength = editor && lengthWritten(editor, item);
    if (editor && acceptedLength !== undefined && acceptedLength > (length ?? 0)) {
      return notify(DID_PARTIALLY_ACCEPT, {...toldOf(editor.document, item), kind, acceptedLength});
    }
  }
}

/** Hide what is shown: where it was, nothing comes by itself until the text changes. */
export async function hide(seen: Seen, notify: Notify): Promise<void> {
  const editor = window.activeTextEditor;
  const [item] = editor ? seen.itemsAt(editor) : [];
  await commands.executeCommand("editor.action.inlineSuggest.hide");
  seen.hidden();
  if (editor && item) notify(DID_REJECT, toldOf(editor.document, item));
}

/** By what the server knows an item again. */
export function toldOf({uri, version}: TextDocument, item: InlineCompletionItem): object {
  return {
    textDocument: {uri: uri.toString(), version},
    item: {insertText: textOf(item), command: item.command},
  };
}
