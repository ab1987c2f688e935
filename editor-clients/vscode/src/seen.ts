/**
 * What was shown, told to the server: VS Code tells an extension of it only by an interface that is
 * not for everybody. So an item counts as shown where it was answered, not cancelled, and the
 * document is the same a moment later; and until the cursor stands behind something else than its
 * beginning. Another extension's text may be shown where ours was.
 */

import {
  type CancellationToken,
  type Disposable,
  type InlineCompletionItem,
  type InlineCompletionList,
  Range,
  type TextDocument,
  type TextEditor,
  window,
} from "vscode";

import {lengthOf} from "./part";

export const MOMENT_MS = 50;

type Answer = InlineCompletionItem[] | InlineCompletionList | null | undefined;

export class Seen implements Disposable {
  private shown: {readonly uri: string; readonly items: readonly InlineCompletionItem[]} | undefined;
  private told: {readonly uri: string; readonly number: unknown} | undefined;
  private readonly watching = window.onDidChangeTextEditorSelection(({textEditor}) => {
    if (textEditor === window.activeTextEditor && this.itemsAt(textEditor).length === 0) {
      this.shown = undefined;
    }
  });

  constructor(private readonly tell: (document: TextDocument, item: InlineCompletionItem) => void) {}

  /** Take note of an answer, and tell of it once, if it comes to be seen. */
  async note(
    document: TextDocument,
    token: CancellationToken,
    answered: Promise<Answer>,
  ): Promise<Answer> {
    const version = document.version;
    const answer = await answered;
    const items = Array.isArray(answer) ? answer : (answer?.items ?? []);
    setTimeout(() => {
      const isSeen = !token.isCancellationRequested && document.version === version;
      if (isSeen && !document.isClosed) this.saw(document, items);
    }, MOMENT_MS);
    return answer;
  }

  /** What may be shown at the cursor: items of which the beginning alone is written. */
  itemsAt(editor: TextEditor): readonly InlineCompletionItem[] {
    if (this.shown?.uri !== editor.document.uri.toString()) return [];
    return this.shown.items.filter((item) => {
      const length = lengthWritten(editor, item);
      return length !== undefined && length < textOf(item).length;
    });
  }

  /** Nothing of it is shown any more. */
  hidden(): void {
    this.shown = undefined;
  }

  /** Nor does it go on in what comes next. */
  forget(): void {
    this.shown = this.told = undefined;
  }

  dispose(): void {
    this.watching.dispose();
  }

  private saw(document: TextDocument, items: readonly InlineCompletionItem[]): void {
    const uri = document.uri.toString();
    const [item] = items;
    this.shown = item && {uri, items};
    if (!item) return;
    // Typed through or accepted in part it is the same suggestion, of which less is left, or more is there.
    const number = numberOf(item);
    const isTold = this.told?.uri === uri && this.told.number === number;
    this.told = {uri, number};
    if (!isTold) this.tell(document, item);
  }
}

/** How much of an item stands before the cursor; undefined where something else does. */
export function lengthWritten({document, selection}: TextEditor, item: InlineCompletionItem): number | undefined {
  const start = item.range?.start;
  if (!start?.isBeforeOrEqual(selection.active)) return undefined;
  return lengthOf(document.getText(new Range(start, selection.active)), textOf(item));
}

/** By what the server knows of which suggestion an item is a part. */
function numberOf({command}: InlineCompletionItem): unknown {
  return (command?.arguments?.[0] as {readonly number?: unknown} | undefined)?.number;
}

export function textOf({insertText}: InlineCompletionItem): string {
  return typeof insertText === "string" ? insertText : insertText.value;
}
