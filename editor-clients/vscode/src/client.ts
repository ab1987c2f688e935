/** The client of one `suture lsp`: what it is asked in, what it is told, and that it is quiet. */

import {homedir} from "node:os";

import {EventEmitter, type LogOutputChannel} from "vscode";
import {
  type ErrorHandler,
  LanguageClient,
  type LanguageClientOptions,
  type Middleware,
  RevealOutputChannelOn,
} from "vscode-languageclient/node";

import {canGrow} from "./growing";
import {DID_GROW} from "./protocol";
import {allOptions, SECTION} from "./settings";

export const CONFIGURED = "workspace/didChangeConfiguration";

const SCHEMES = ["file", "untitled", "vscode-notebook-cell"];

/** A client that never shows a message box: the status item says what is wrong. */
export class QuietClient extends LanguageClient {
  private readonly failed = new EventEmitter<unknown>();
  /** It could not be started, by whomever, for a reason. */
  readonly onDidFailToStart = this.failed.event;

  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }

  override async start(): Promise<void> {
    try {
      await super.start();
    } catch (error) {
      this.failed.fire(error);
      throw error;
    }
  }

  /** Have the error handler say what comes next, as of a server that ended. */
  async end(): Promise<void> {
    this.serverProcess?.kill(); // it runs where it refused to be initialized
    await this.handleConnectionClosed();
  }
}

/** A client that is not started yet; `program` is run anew whenever `errors` has it restart. */
export function createClient(
  program: string,
  log: LogOutputChannel,
  errors: ErrorHandler,
  middleware: Middleware,
): QuietClient {
  const options: LanguageClientOptions = {
    documentSelector: SCHEMES.map((scheme) => ({scheme})),
    initializationOptions: () => ({[SECTION]: allOptions(), knows: canGrow() ? [DID_GROW] : []}),
    outputChannel: log,
    revealOutputChannelOn: RevealOutputChannelOn.Never,
    errorHandler: errors,
    // Returning would stop a client that is none yet; `start` is rejected with this.
    initializationFailedHandler: (error) => {
      throw error;
    },
    middleware: {
      ...middleware,
      // Both ways by which the server hears of options: asked for, and told.
      workspace: {
        configuration: ({items}) => items.map(({section}) => (section === SECTION ? allOptions() : null)),
        didChangeConfiguration: () =>
          client.sendNotification(CONFIGURED, {settings: {[SECTION]: allOptions()}}),
      },
    },
  };
  // Not in the workspace: what stands there is none of the program's business.
  const server = {command: program, args: ["lsp"], options: {cwd: homedir()}};
  const client = new QuietClient(SECTION, "Suture", server, options);
  return client;
}
