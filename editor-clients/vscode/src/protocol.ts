/** What `suture lsp` says and is told beyond the language server protocol: docs/lsp.md. */

export type Kind = "Normal" | "Warning" | "Error" | "Inactive";

/** How the server does, and why nothing is suggested. */
export interface Status {
  readonly kind: Kind;
  readonly busy: boolean;
  readonly message: string;
  /** A code of docs/reasons.md. */
  readonly reason: string | null;
}

/** All that is known of the last request. `report` is the server's; empty where it was not asked. */
export interface Explained {
  readonly suggestion: {readonly text: string; readonly delete_after: number} | null;
  readonly reason: string | null;
  readonly message: string;
  readonly source: "" | "server" | "typed" | "ahead";
  readonly took_ms: number;
  readonly report: Report;
  /** Whose text was sent beside the cursor's. */
  readonly files: readonly string[];
  readonly status: Status;
}

export interface DidGrow {
  readonly textDocument: {readonly uri: string};
}

/** The parts of a report that are told in words. Others may stand beside them. */
export interface Report {
  readonly finish?: string;
  readonly healing?: {
    readonly level: string;
    readonly dropped_tokens: number;
    readonly pending: string;
    readonly nodes: number;
  };
  readonly prompt?: {
    readonly tokens: number;
    readonly reused: number;
    readonly evaluated: number;
    readonly layout: string;
    readonly truncated: boolean;
    readonly excluded: number;
  };
  readonly draft?: {readonly proposed: number; readonly accepted: number};
  readonly rules?: readonly string[];
  readonly confidence?: number | null;
}

export const STATUS = "suture/status";
/** There is more of the text that is shown in a document, told to clients that say that they know it. */
export const DID_GROW = "suture/didGrow";
export const DID_SHOW = "suture/didShow";
export const DID_PARTIALLY_ACCEPT = "suture/didPartiallyAccept";
export const DID_REJECT = "suture/didReject";
