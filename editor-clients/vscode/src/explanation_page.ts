/** The explanation of the last request as a page that one can read and not change. */

import {
  type Disposable,
  EventEmitter,
  type TextDocumentContentProvider,
  Uri,
  ViewColumn,
  window,
  workspace,
} from "vscode";

import {explanation} from "./explanation";
import type {Explained} from "./protocol";

const SCHEME = "suture-explanation";
const PAGE = Uri.from({scheme: SCHEME, path: "/Suggestion explained.md"});

export class ExplanationPage implements TextDocumentContentProvider, Disposable {
  private readonly changed = new EventEmitter<Uri>();
  readonly onDidChange = this.changed.event;
  private readonly registration = workspace.registerTextDocumentContentProvider(SCHEME, this);
  private text = "";

  provideTextDocumentContent(): string {
    return this.text;
  }

  /** Show it beside the text, which keeps the focus. */
  async show(explained: Explained): Promise<void> {
    this.text = explanation(explained);
    this.changed.fire(PAGE);
    const document = await workspace.openTextDocument(PAGE);
    await window.showTextDocument(document, {viewColumn: ViewColumn.Beside, preserveFocus: true});
  }

  dispose(): void {
    this.registration.dispose();
    this.changed.dispose();
  }
}
