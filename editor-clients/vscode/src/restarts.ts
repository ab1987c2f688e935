/**
 * What happens when the server's process ends: it is started again, later each time that it ended
 * soon. It is never given up, and the user is told once, not each time.
 */

/** The values of vscode-languageclient, which this file can be tested without. */
const RESTART = 2, DO_NOT_RESTART = 1, CONTINUE = 1;

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 30_000;
/** Who lived so long did not fail at its start. */
const LIVED_MS = 30_000;
/** So many ends in a row are told. */
const TOLD_AT = 3;

export interface Hooks {
  /** The process ended and is started again in so many milliseconds. */
  ended(waitMs: number): void;
  /** It ends again and again. Called once. */
  failing(): void;
  now(): number;
}

/** The error handler of one client. */
export class Restarts {
  private endsInARow = 0;
  private startedAt: number;
  private isTold = false;
  private isOver = false;
  private _isWaiting = false;
  private wake: () => void = () => undefined;

  constructor(private readonly hooks: Hooks) {
    this.startedAt = hooks.now();
  }

  /** Whether it ended, and is not started again yet. */
  get isWaiting(): boolean {
    return this._isWaiting;
  }

  /** A broken message is no reason to end: if the server is gone, `closed` is called, too. */
  error(): {action: number; handled: true} {
    return {action: CONTINUE, handled: true};
  }

  /** Wait, then restart; at once no, where `end` was called. */
  async closed(): Promise<{action: number; handled: true}> {
    if (!this.isOver) await this.pause();
    this.startedAt = this.hooks.now();
    return {action: this.isOver ? DO_NOT_RESTART : RESTART, handled: true};
  }

  /** Nothing is restarted any more: the user wants it so. */
  end(): void {
    this.isOver = true;
    this.wake();
  }

  private async pause(): Promise<void> {
    const lived = this.hooks.now() - this.startedAt;
    this.endsInARow = lived < LIVED_MS ? this.endsInARow + 1 : 1;
    const waitMs = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (this.endsInARow - 1));
    this.hooks.ended(waitMs);
    if (this.endsInARow >= TOLD_AT && !this.isTold) {
      this.isTold = true;
      this.hooks.failing();
    }
    this._isWaiting = true;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, waitMs);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this._isWaiting = false;
  }
}
