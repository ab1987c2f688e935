/**
 * What was shown, told to the server: VS Code tells an extension of it only by an interface that is
 * not for everybody. So an item counts as shown where it was answered, not cancelled, and the
 * document is the same a moment later.
 */

import type {CancellationToken, InlineCompletionItem, InlineCompletionList, TextDocument} from "vscode";

const MOMENT_MS = 50;

type Answer = InlineCompletionItem[] | InlineCompletionList | null | undefined;

export class Seen {
  private last: {readonly uri: string; readonly text: string} | undefined;

  constructor(private readonly tell: (document: TextDocument) => void) {}

  /** Take note of an answer, and tell of it once, if it comes to be seen. */
  async note(
    document: TextDocument,
    token: CancellationToken,
    answered: Promise<Answer>,
  ): Promise<Answer> {
    const version = document.version;
    const answer = await answered;
    const [item] = Array.isArray(answer) ? answer : (answer?.items ?? []);
    if (item) {
      setTimeout(() => {
        const isSeen = !token.isCancellationRequested && document.version === version;
        if (isSeen && !document.isClosed) this.saw(document, textOf(item));
      }, MOMENT_MS);
    }
    return answer;
  }

  /** Whether what was seen last is in this document. */
  isIn(document: TextDocument): boolean {
    return this.last?.uri === document.uri.toString();
  }

  forget(): void {
    this.last = undefined;
  }

  private saw(document: TextDocument, text: string): void {
    const uri = document.uri.toString();
    // Typed through or accepted in part it is the same suggestion, of which less is left.
    const isTold = this.last?.uri === uri && this.last.text.endsWith(text);
    this.last = {uri, text};
    if (!isTold) this.tell(document);
  }
}

function textOf(item: InlineCompletionItem): string {
  const text = typeof item.insertText === "string" ? item.insertText : item.insertText.value;
  return text.trimEnd(); // on an empty line the server leaves out the line end
}
