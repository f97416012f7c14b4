// Talks to the server. An answer stays in the browser's storage until the server has it, under an id that makes
// repeating it harmless.

const PENDING = "onepos.pending.";

export class Problem extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const makeId = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export async function call(method, path, body, type) {
  const options = { method, headers: {}, credentials: "same-origin", redirect: "error" };
  if (body !== undefined) {
    options.body = type ? body : JSON.stringify(body);
    options.headers["content-type"] = type || "application/json";
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Problem(0, "the server does not answer");
  }
  if (response.status === 401) {
    location.assign("/login");
  }
  const text = await response.text();
  let content = null;
  try {
    content = text ? JSON.parse(text) : null;
  } catch {
    throw new Problem(response.status, "the server's answer can not be read");
  }
  if (!response.ok) {
    throw new Problem(response.status, content?.detail || `the server refuses (${response.status})`);
  }
  return content;
}

// One tab is one session. A copied tab gets a session of its own where the browser tells them apart.
export async function takeSession() {
  let session = sessionStorage.getItem("onepos.session");
  if (session && navigator.locks) {
    const isFree = await new Promise((tell) => {
      navigator.locks.request(`onepos.${session}`, { ifAvailable: true }, (lock) => {
        tell(Boolean(lock));
        return lock ? new Promise(() => {}) : undefined;
      });
    });
    if (isFree) return session;
    session = null;
    sessionStorage.removeItem("onepos.undo");
  }
  if (!session) {
    session = makeId();
    sessionStorage.setItem("onepos.session", session);
    if (navigator.locks) navigator.locks.request(`onepos.${session}`, () => new Promise(() => {}));
  }
  return session;
}

// Sends answers one after the other, and again until they are acknowledged.
export class Outbox {
  constructor(session, onChange) {
    this.key = PENDING + session;
    this.onChange = onChange;
    this.waiting = [];
    for (const key of Object.keys(localStorage).filter((name) => name.startsWith(PENDING))) {
      this.waiting.push(...JSON.parse(localStorage.getItem(key)));
      if (key !== this.key) localStorage.removeItem(key);
    }
    this.idle = Promise.resolve();
    this.lost = "";
    if (this.waiting.length) this.start();
  }

  add(action) {
    this.waiting.push(action);
    this.keep();
    if (!this.isRunning) this.start();
    return this.idle;
  }

  start() {
    this.isRunning = true;
    this.idle = this.run();
  }

  keep() {
    if (this.waiting.length) localStorage.setItem(this.key, JSON.stringify(this.waiting));
    else localStorage.removeItem(this.key);
    this.onChange(this);
  }

  async run() {
    this.keep();
    while (this.waiting.length) {
      try {
        const answer = await call("POST", "/api/answers", this.waiting[0]);
        this.lost = "";
        this.waiting.shift();
        this.counts = answer.counts;
        this.keep();
      } catch (problem) {
        const isTemporary = problem.status === 0 || problem.status === 401 || problem.status === 429 || problem.status >= 500;
        if (!isTemporary) {
          this.waiting.shift();
          this.refused = problem.message;
          this.keep();
          this.refused = "";
          continue;
        }
        this.lost = problem.message;
        this.onChange(this);
        await new Promise((go) => setTimeout(go, 700));
      }
    }
    this.isRunning = false;
  }
}
