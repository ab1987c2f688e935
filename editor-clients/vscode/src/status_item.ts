/** The item in the status bar: the state, with its reason in words; a click opens the menu. */

import {type Disposable, MarkdownString, StatusBarAlignment, ThemeColor, window} from "vscode";

import type {Saying} from "./state";

export class StatusItem implements Disposable {
  private readonly item = window.createStatusBarItem("status", StatusBarAlignment.Right, 100);

  constructor() {
    this.item.name = "Suture";
    this.item.command = "suture.menu";
  }

  show({short, sentence, icon, severity}: Saying): void {
    this.item.text = `$(${icon}) Suture${short ? `: ${short}` : ""}`;
    // As text, not as Markdown: names of files and messages of servers stand in it.
    this.item.tooltip = new MarkdownString().appendText(`Suture: ${sentence}`);
    this.item.accessibilityInformation = {label: `Suture: ${sentence}`};
    this.item.backgroundColor =
      severity === "none" ? undefined : new ThemeColor(`statusBarItem.${severity}Background`);
    this.item.show();
  }

  dispose(): void {
    this.item.dispose();
  }
}
