/**
 * What nobody could answer, asked once more when somebody can: a model takes long to load, and who
 * waits for it types nothing meanwhile.
 *
 * A1  It is asked where it was asked last, if nothing has changed since: the text, the cursor, the
 *     editor.
 * A2  It is asked as it was: by hand or not.
 */

import {
  commands,
  type InlineCompletionContext,
  type InlineCompletionTriggerKind,
  type Position,
  type TextDocument,
  window,
} from "vscode";

import type {Status} from "./protocol";

/** Reasons for which nothing is answered, wherever it is asked. */
const GONE: ReadonlySet<string> = new Set(["LOADING", "UNREACHABLE"]);

interface Asked {
  readonly document: TextDocument;
  readonly version: number;
  readonly position: Position;
  readonly triggerKind: InlineCompletionTriggerKind;
}

export class Again {
  private last: Asked | undefined;
  private isAsking = false;

  /** Take note of a request; the context to ask with. */
  noted(document: TextDocument, position: Position, context: InlineCompletionContext): InlineCompletionContext {
    const {last} = this;
    // VS Code has no other command than the one of who asks by hand.
    if (this.isAsking && last && isOf(last, document, position)) {
      return {...context, triggerKind: last.triggerKind};
    }
    this.last = {document, version: document.version, position, triggerKind: context.triggerKind};
    return context;
  }

  /** The server says how it does now; ask, where it answers again. */
  async told(before: Status | undefined, now: Status): Promise<void> {
    const editor = window.activeTextEditor;
    const isBack = isGone(before) && !isGone(now) && now.kind !== "Error";
    if (!isBack || !editor || !this.last) return;
    if (!isOf(this.last, editor.document, editor.selection.active)) return;
    this.isAsking = true;
    try {
      await commands.executeCommand("editor.action.inlineSuggest.trigger");
    } finally {
      this.isAsking = false;
    }
  }
}

function isGone(status: Status | undefined): boolean {
  return GONE.has(status?.reason ?? "");
}

function isOf({document, version, position}: Asked, other: TextDocument, at: Position): boolean {
  return document === other && version === other.version && position.isEqual(at);
}
