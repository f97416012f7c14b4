// The frame: pages, the reviewer's name, help, and what is said about saving.

import { Outbox, call, takeSession } from "./api.js";
import { $, number } from "./dom.js";
import { Overview } from "./overview.js";
import { Review } from "./review.js";
import { Try } from "./try.js";

const PATHS = { "/": "review", "/overview": "overview", "/try": "try" };
const TITLES = { review: "Review", overview: "Overview", try: "Try one" };

export class App {
  async start() {
    this.session = await takeSession();
    this.outbox = new Outbox(this.session, (outbox) => this.sayAboutSaving(outbox));
    this.reviewer = localStorage.getItem("onepos.reviewer") || "";
    this.hasKeys = localStorage.getItem("onepos.keys") !== "off";
    await this.retry(async () => {
      this.state = await call("GET", "/api/state");
    });
    $("dataset").textContent = this.state.name;
    this.setCounts(this.state.counts);
    this.views = { review: new Review(this), overview: new Overview(this), try: new Try(this) };
    this.connect();
    this.setName(this.reviewer || (await this.askName()));
    this.show(location.pathname, false);
  }

  connect() {
    for (const link of document.querySelectorAll("nav a")) {
      link.addEventListener("click", (event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey) return;
        event.preventDefault();
        history.pushState(null, "", link.getAttribute("href"));
        this.show(location.pathname, true);
      });
    }
    addEventListener("popstate", () => this.show(location.pathname, true));
    $("who").addEventListener("click", async () => {
      const before = this.reviewer;
      this.setName(await this.askName());
      if (this.reviewer !== before && this.view === "review") this.views.review.enter();
    });
    $("help").addEventListener("click", () => $("help-dialog").showModal());
    $("keys-on").checked = this.hasKeys;
    $("keys-on").addEventListener("change", (event) => {
      this.hasKeys = event.target.checked;
      localStorage.setItem("onepos.keys", this.hasKeys ? "on" : "off");
    });
    addEventListener("keydown", (event) => this.press(event));
  }

  press(event) {
    const isTyping = event.target.closest("input:not([type=checkbox]), textarea, select") !== null;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.key === "?" && !isTyping) {
      event.preventDefault();
      $("help-dialog").showModal();
      return;
    }
    if (this.view === "review" && this.hasKeys) this.views.review.press(event, isTyping);
  }

  show(path, isMoved) {
    this.view = PATHS[path] || "review";
    document.title = `${TITLES[this.view]} · onepos`;
    for (const [name, view] of Object.entries(this.views)) {
      const isShown = name === this.view;
      $(name).hidden = !isShown;
      const link = document.querySelector(`nav a[data-view="${name}"]`);
      if (isShown) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      if (!isShown) view.leave?.();
    }
    if (isMoved) $("main").focus({ preventScroll: true });
    scrollTo(0, 0);
    this.views[this.view].enter();
  }

  askName() {
    const dialog = $("who-dialog");
    $("who-name").value = this.reviewer;
    dialog.showModal();
    $("who-name").select();
    return new Promise((tell) => {
      const stop = (event) => {
        if (!this.reviewer) event.preventDefault(); // a name is needed once
      };
      dialog.addEventListener("cancel", stop);
      dialog.addEventListener(
        "close",
        () => {
          dialog.removeEventListener("cancel", stop);
          tell($("who-name").value.trim().slice(0, 80) || this.reviewer || "anonymous");
        },
        { once: true },
      );
    });
  }

  setName(name) {
    this.reviewer = name;
    localStorage.setItem("onepos.reviewer", name);
    $("who").textContent = name;
    $("who").setAttribute("aria-label", `Reviewer: ${name}. Change the name`);
  }

  setCounts(counts) {
    this.counts = counts;
    const share = counts.items ? (100 * counts.done) / counts.items : 0;
    $("track").setAttribute("aria-valuenow", share.toFixed(1));
    $("track").setAttribute("aria-valuetext", `${number(counts.done)} of ${number(counts.items)} items reviewed`);
    $("track").firstElementChild.style.width = `${share}%`;
  }

  sayAboutSaving(outbox) {
    if (outbox.counts) this.setCounts(outbox.counts);
    const n = outbox.waiting.length;
    if (outbox.refused) this.alert(`An answer was not stored: ${outbox.refused}`);
    else if (outbox.lost) this.alert(`Not saved yet: ${outbox.lost}. ${n} ${n === 1 ? "answer is" : "answers are"} kept here and sent again.`);
    else this.alert("");
    document.body.dataset.saving = n ? "yes" : "no";
    $("status").textContent = n ? "Saving …" : outbox.counts ? "Saved" : "";
  }

  alert(text) {
    $("alert").textContent = text;
    $("alert").hidden = !text;
  }

  // Repeats what a server that is away does not answer; shows what it refuses.
  async retry(work) {
    for (;;) {
      try {
        const result = await work();
        if (this.isAway) {
          this.isAway = false;
          this.alert("");
        }
        return result;
      } catch (problem) {
        if (!(problem.status === 0 || problem.status === 429)) {
          this.alert(problem.message ? `${problem.message[0].toUpperCase()}${problem.message.slice(1)}` : String(problem));
          throw problem;
        }
        this.isAway = true;
        this.alert("The server does not answer. Trying again …");
        await new Promise((go) => setTimeout(go, 700));
      }
    }
  }
}

new App().start();
