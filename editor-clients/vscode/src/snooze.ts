/** No suggestions for some minutes, in this window. The server keeps to it; we remember it for
 * when it is started again. */

import type {Disposable} from "vscode";

import type {Session} from "./session";

export const MINUTES = [5, 15, 30, 60] as const;

export class Snooze implements Disposable {
  private _until = 0;
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly session: Session,
    private readonly changed: () => void,
  ) {}

  /** Milliseconds since 1970. */
  get until(): number {
    return this._until;
  }

  /** Begin, or with 0 end it. */
  async set(minutes: number): Promise<void> {
    this._until = Date.now() + minutes * 60_000;
    this.watch();
    await this.session.command("snooze", minutes);
  }

  /** Tell a server that was started anew what is left of it. */
  async keep(): Promise<void> {
    const left = this._until - Date.now();
    if (left > 0) await this.session.command("snooze", left / 60_000);
  }

  dispose(): void {
    clearTimeout(this.timer);
  }

  /** Show what is left, once a minute. */
  private watch(): void {
    clearTimeout(this.timer);
    this.changed();
    const left = this._until - Date.now();
    if (left > 0) this.timer = setTimeout(() => this.watch(), left % 60_000 || 60_000);
  }
}
