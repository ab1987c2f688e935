/**
 * The life of `suture lsp` in this window: looked for, started, started again when it ends, stopped.
 *
 * S1  At most one client lives: the one before has let go of its commands first.
 * S2  Nothing is asked of a server that is not up.
 */

import {type Disposable, EventEmitter, type InlineCompletionItem, type LogOutputChannel} from "vscode";
import {type Middleware, State as ClientState} from "vscode-languageclient/node";

import {toldOf} from "./accepting";
import {Again} from "./again";
import {createClient, type QuietClient} from "./client";
import {Growing} from "./growing";
import {DID_GROW, DID_SHOW, type DidGrow, type Status, STATUS} from "./protocol";
import {Restarts} from "./restarts";
import {Seen} from "./seen";
import {isOn} from "./settings";
import type {Running} from "./state";
import {findProgram} from "./surroundings";

/** How long who stops a client waits for its start to be over. */
const START_MS = 2000;

interface Live {
  readonly client: QuietClient;
  readonly restarts: Restarts;
  /** Over when it was started, or could not be; never where the program says nothing. */
  readonly started: Promise<void>;
}

export class Session implements Disposable {
  readonly seen = new Seen((document, item) => this.notify(DID_SHOW, toldOf(document, item)));
  private readonly again = new Again();
  private readonly growing: Growing;
  private readonly changed = new EventEmitter<void>();
  readonly onDidChange = this.changed.event;
  private readonly failed = new EventEmitter<void>();
  /** It ends again and again; fired once for each start by the user. */
  readonly onDidFail = this.failed.event;
  private readonly cameUp = new EventEmitter<void>();
  readonly onDidComeUp = this.cameUp.event;
  private live: Live | undefined;
  private queue: Promise<void> = Promise.resolve();
  private _running: Running = {is: "off"};
  private _status: Status | undefined;

  constructor(
    private readonly log: LogOutputChannel,
    extensionId: string,
  ) {
    this.growing = new Growing(this.seen, extensionId);
  }

  get running(): Running {
    return this._running;
  }

  get status(): Status | undefined {
    return this._status;
  }

  get isUp(): boolean {
    return this._running.is === "up";
  }

  /** Start it, where it is wanted and does not run. */
  start(): Promise<void> {
    return this.enqueue(async () => {
      if (!this.live) await this.open();
    });
  }

  /** Look for the program anew, and start it. */
  restart(): Promise<void> {
    return this.enqueue(async () => {
      await this.close();
      await this.open();
    });
  }

  stop(): Promise<void> {
    return this.enqueue(() => this.close());
  }

  dispose(): void {
    this.seen.dispose();
    void this.stop();
  }

  /** The answer of a command of the server; undefined where it does not run, or fails. */
  async command<T>(name: string, ...given: unknown[]): Promise<T | undefined> {
    if (!this.live || !this.isUp) return undefined;
    try {
      const params = {command: `suture.${name}`, arguments: given};
      return await this.live.client.sendRequest<T>("workspace/executeCommand", params);
    } catch (error) {
      this.log.warn(`suture.${name}: ${String(error)}`);
      return undefined;
    }
  }

  notify(method: string, params: object): void {
    if (!this.live || !this.isUp) return;
    this.live.client.sendNotification(method, params).catch((error: unknown) => {
      this.log.warn(`${method}: ${String(error)}`);
    });
  }

  /** One after the other (S1). */
  private enqueue(work: () => Promise<void>): Promise<void> {
    this.queue = this.queue.then(work).catch((error: unknown) => this.log.error(String(error)));
    return this.queue;
  }

  private async open(): Promise<void> {
    if (!isOn()) return this.set({is: "off"});
    const found = findProgram();
    if ("missing" in found) return this.set({is: "missing", why: found.missing});
    this.log.info(`starting ${found.path} lsp`);
    const restarts = new Restarts({
      ended: (waitMs) => {
        this.log.warn(`suture lsp ended; it is started again in ${waitMs} ms`);
        this.set({is: "ended", why: "suture lsp ended, and is started again."});
      },
      failing: () => this.failed.fire(),
      now: Date.now,
    });
    const client = createClient(found.path, this.log, restarts, this.middleware());
    client.onNotification(STATUS, (status: Status) => {
      if (this.live?.client !== client) return;
      const before = this._status;
      this._status = status;
      this.changed.fire();
      void this.again.told(before, status);
    });
    client.onNotification(DID_GROW, ({textDocument}: DidGrow) => void this.growing.grew(textDocument.uri));
    client.onDidChangeState(({newState}) => this.became(client, newState));
    client.onDidFailToStart((error) => this.couldNotStart(client, error));
    this.set({is: "starting"});
    this.live = {client, restarts, started: client.start().catch(() => undefined)};
  }

  /** One more end, also where there was no process that could end. */
  private couldNotStart(client: QuietClient, error: unknown): void {
    this.log.error(`suture lsp could not be started: ${String(error)}`);
    if (this.live?.client !== client || this.live.restarts.isWaiting) return;
    void client.end();
    this.set({is: "ended", why: `suture lsp could not be started, and is tried again: ${String(error)}`});
  }

  private async close(): Promise<void> {
    const live = this.live;
    if (!live) return;
    this.live = undefined;
    this.seen.forget();
    this.set({is: "off"});
    live.restarts.end();
    // One that is being started can not be stopped.
    await Promise.race([live.started, new Promise((resolve) => setTimeout(resolve, START_MS))]);
    const process = live.client.serverProcess;
    await live.client.dispose().catch(() => undefined); // it may be dead, or only half alive
    if (process?.exitCode === null && process.signalCode === null) process.kill();
  }

  private became(client: QuietClient, state: ClientState): void {
    if (this.live?.client !== client) return;
    if (state === ClientState.Running) {
      this.set({is: "up"});
      this.cameUp.fire();
    } else if (state === ClientState.Starting) {
      this.set({is: "starting"});
    }
  }

  private set(running: Running): void {
    this._running = running;
    if (running.is !== "up") this._status = undefined;
    this.changed.fire();
  }

  private middleware(): Middleware {
    return {
      provideInlineCompletionItems: (document, position, context, token, next) => {
        if (!this.isUp) return [];
        const asked = this.again.noted(document, position, this.growing.contextOf(document, context));
        const answered = Promise.resolve(next(document, position, asked, token));
        return this.seen.note(document, token, answered.catch((): InlineCompletionItem[] => []));
      },
      // The status item says what is going on.
      handleWorkDoneProgress: () => undefined,
    };
  }
}
