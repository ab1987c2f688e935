/**
 * A text of which the first line was shown before the rest was written: once that is there, it is
 * asked for, and takes the place of what is shown.
 *
 * VS Code asks anew where nothing has changed only as if by hand, and puts what comes behind what is
 * shown. So we go on to the next one, which is ours, as no other provider is asked; and tell the
 * server that it was nobody's hand.
 */

import {
  commands,
  type InlineCompletionContext,
  InlineCompletionTriggerKind,
  type TextDocument,
  version,
  window,
} from "vscode";

import {MOMENT_MS, type Seen} from "./seen";

/** Since when one provider alone can be asked. */
const MINOR_VERSION = 106;

/** Whether more of a text can be shown that is shown already. */
export function canGrow(): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return major > 1 || minor >= MINOR_VERSION;
}

export class Growing {
  /** The document in which we have something asked. */
  private asking: string | undefined;

  constructor(
    private readonly seen: Seen,
    private readonly extensionId: string,
  ) {}

  /** Have all of it shown, where some of it is. */
  async grew(uri: string): Promise<void> {
    // What was answered a moment ago counts as seen by then.
    await new Promise((resolve) => setTimeout(resolve, 2 * MOMENT_MS));
    const editor = window.activeTextEditor;
    if (editor?.document.uri.toString() !== uri || this.seen.itemsAt(editor).length === 0) return;
    this.asking = uri;
    try {
      const wanted = {providerId: `${this.extensionId}:*`};
      await commands.executeCommand("editor.action.inlineSuggest.trigger", wanted);
      await commands.executeCommand("editor.action.inlineSuggest.showNext");
    } finally {
      this.asking = undefined;
    }
  }

  /** The context of a request as the server is to have it. */
  contextOf({uri}: TextDocument, context: InlineCompletionContext): InlineCompletionContext {
    if (this.asking !== uri.toString()) return context;
    return {...context, triggerKind: InlineCompletionTriggerKind.Automatic};
  }
}
