// What the page asks its server.

const TIMEOUT_MS = 5000;

/** An answer that is none: `reason` is a code of docs/reasons.md, `retryS` when to ask again. */
export class Refused extends Error {
  constructor(message, reason, retryS) {
    super(message);
    this.reason = reason;
    this.retryS = retryS;
  }
}

/** The server that the page is from; `key` is the API key, "" without one. */
export class Server {
  constructor(onKeyWanted) {
    this.key = "";
    this._onKeyWanted = onKeyWanted;
  }

  /** What `GET path` says, as JSON. */
  async get(path) {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    return (await this._send(path, {signal, cache: "no-store"})).json();
  }

  /** What `POST path` says, as JSON. */
  async post(path, body, signal) {
    return (await this._send(path, {method: "POST", body, signal})).json();
  }

  /** Tell something that no answer is waited for. */
  async report(path, body) {
    await this._send(path, {method: "POST", body: JSON.stringify(body), keepalive: true}).catch(() => {});
  }

  /** The data of each event of a stream. */
  async *events(path, body, signal) {
    const response = await this._send(path, {method: "POST", body, signal});
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const {value, done} = await reader.read().catch((error) => {
        throw refusal(error);
      });
      if (done) return;
      text += value;
      const events = text.split("\n\n");
      text = events.pop();
      for (const event of events) yield checked(JSON.parse(event.replace(/^data: /, "")));
    }
  }

  async _send(path, init) {
    const headers = {"Content-Type": "application/json"};
    if (this.key) headers.Authorization = "Bearer " + this.key;
    const response = await fetch(path, {...init, headers}).catch((error) => {
      throw refusal(error);
    });
    if (response.ok) return response;
    if (response.status === 401) this._onKeyWanted();
    const said = await response.json().catch(() => ({}));
    const message = said.error?.message ?? "The server answered " + response.status + ".";
    const retryS = Number(response.headers.get("Retry-After")) || (response.status === 503 ? 1 : 0);
    throw new Refused(message, said.suture?.reason, retryS);
  }
}

/** The event, unless it is an error. */
function checked(event) {
  if (event.error) throw new Refused(event.error.message, event.suture?.reason ?? "ERROR", 0);
  return event;
}

/** What a failed fetch means: an abort is the page's own doing. */
function refusal(error) {
  if (error.name === "AbortError") return error;
  return new Refused("The server cannot be reached.", "UNREACHABLE", 2);
}
