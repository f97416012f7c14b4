// The review of one item after the other.

import { call, makeId } from "./api.js";
import { $, el, number, percent, plural } from "./dom.js";

const VALUES = [
  ["yes", "Yes", "Y"],
  ["no", "No", "N"],
  ["unsure", "Unsure", "U"],
  ["skip", "Skip", "S"],
];
const OTHERS_SHOWN = 8;

export class Review {
  constructor(app) {
    this.app = app;
    this.root = $("review");
    this.item = null;
    this.isHidden = localStorage.getItem("onepos.scores") === "hidden";
    this.undoable = JSON.parse(sessionStorage.getItem("onepos.undo") || "[]");
  }

  get who() {
    return { session: this.app.session, reviewer: this.app.reviewer };
  }

  async enter() {
    if (this.item === null) this.root.replaceChildren(el("p", { class: "muted wait" }, "Loading the next item …"));
    await this.next();
  }

  async next() {
    await this.app.outbox.idle;
    const found = await this.app.retry(() => call("POST", "/api/next", this.who));
    this.app.setCounts(found.counts);
    this.render(found.item);
  }

  // What is stored

  send(fields) {
    const action = { id: makeId(), item: this.item.id, answers: [], ...this.who, ...fields };
    this.undoable = [...this.undoable.slice(-99), action.id];
    sessionStorage.setItem("onepos.undo", JSON.stringify(this.undoable));
    return this.app.outbox.add(action);
  }

  answer(column, value) {
    this.item.answers[column] = value;
    this.send({ answers: [{ label: this.app.state.labels[column], value }] });
    this.mark(column);
    this.step(1, true);
    this.update();
  }

  async finish(fields) {
    if (this.isBusy || this.item === null) return;
    this.isBusy = true;
    try {
      await this.send(fields);
      await this.next();
    } finally {
      this.isBusy = false;
    }
  }

  async undo() {
    if (this.isBusy || !this.undoable.length) return;
    this.isBusy = true;
    try {
      await this.app.outbox.idle;
      const action = this.undoable.pop();
      sessionStorage.setItem("onepos.undo", JSON.stringify(this.undoable));
      const found = await this.app.retry(() => call("POST", `/api/answers/${action}/undo`, this.who));
      this.app.setCounts(found.counts);
      this.render(found.item);
      $("status").textContent = "Undone";
    } finally {
      this.isBusy = false;
    }
  }

  // Keys

  press(event, isTyping) {
    if (isTyping) {
      if (event.key === "Escape") this.leaveSearch();
      if (event.key === "Enter" && event.target.id === "search") {
        event.preventDefault();
        this.takeFirst();
      }
      return;
    }
    if (this.item === null) {
      if (event.key.toLowerCase() === "z") this.undo();
      return;
    }
    const isButton = event.target.closest("button, a, summary") !== null;
    const value = VALUES.find(([, , key]) => key === event.key.toUpperCase());
    const actions = {
      ArrowDown: () => this.step(1),
      ArrowUp: () => this.step(-1),
      j: () => this.step(1),
      k: () => this.step(-1),
      a: () => this.finish({ outcome: "done", others_absent: true }),
      x: () => this.finish({ outcome: "skipped" }),
      z: () => this.undo(),
      h: () => this.toggleScores(),
      "/": () => $("search")?.focus(),
    };
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.key === "Enter" && !isButton) actions.Enter = () => this.finish({ outcome: "done" });
    if (value && this.current !== undefined) actions[key] = () => this.answer(this.current, value[0]);
    if (/^[1-9]$/.test(key) && this.rows.length >= Number(key)) actions[key] = () => this.focus(this.rows[Number(key) - 1]);
    if (actions[key] && !event.repeat) {
      event.preventDefault();
      actions[key]();
    } else if (actions[key] && key.startsWith("Arrow")) {
      event.preventDefault();
      actions[key]();
    }
  }

  step(by, isAnswered) {
    const place = this.rows.indexOf(this.current);
    const target = isAnswered ? this.rows.find((row, k) => k > place && !this.item.answers[row]) : this.rows[place + by];
    if (target !== undefined) this.focus(target);
    else if (isAnswered) this.focus(this.current, true);
  }

  focus(column, isQuiet) {
    this.current = column;
    for (const row of this.root.querySelectorAll(".label")) {
      const isCurrent = Number(row.dataset.column) === column;
      row.classList.toggle("current", isCurrent);
      if (isCurrent) {
        row.focus({ preventScroll: true });
        if (!isQuiet) row.scrollIntoView({ block: "nearest" });
      }
    }
  }

  leaveSearch() {
    $("search").value = "";
    this.fillOthers();
    this.focus(this.current ?? this.rows[0]);
  }

  takeFirst() {
    const first = this.root.querySelector("#others .label");
    if (first) this.focus(Number(first.dataset.column));
  }

  toggleScores() {
    this.isHidden = !this.isHidden;
    localStorage.setItem("onepos.scores", this.isHidden ? "hidden" : "shown");
    this.update();
  }

  // Drawing

  render(item) {
    this.item = item;
    this.rows = [];
    this.current = undefined;
    if (item === null) {
      this.root.replaceChildren(this.makeEnd());
      return;
    }
    this.answeredBefore = Object.keys(item.answers).map(Number);
    this.root.replaceChildren(el("div", { class: "desk" }, this.makeItem(item), this.makePanel(item)));
    this.fillOthers();
    this.update();
    this.focus(item.doubtful.find((column) => !item.answers[column]) ?? this.rows[0], true);
    scrollTo(0, 0);
  }

  makeEnd() {
    return el(
      "div",
      { class: "card end-card" },
      el("h1", {}, "Nothing is left to review"),
      el("p", {}, "Every item is finished, skipped by you, or open in another window."),
      el("div", { class: "row" }, el("a", { class: "button primary", href: "/overview" }, "Go to the overview"), this.makeUndo()),
    );
  }

  makeItem(item) {
    const { texts, fields, image, note } = item.shown;
    const parts = [];
    if (image) {
      const picture = el("img", { src: `/api/items/${item.row}/image`, alt: `Item ${item.id}`, class: "picture" });
      picture.addEventListener("load", () => picture.classList.toggle("tiny", picture.naturalWidth <= 64));
      picture.addEventListener("error", () => picture.replaceWith(el("p", { class: "muted" }, "This image can not be shown.")));
      parts.push(el("div", { class: "frame" }, picture));
    }
    for (const [name, text] of texts) {
      parts.push(el("h3", { class: "field-name" }, name), el("p", { class: "text" }, text || "–"));
    }
    if (fields.length) {
      const lines = fields.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value || "–")));
      parts.push(el("table", { class: "fields" }, el("caption", { class: "sr" }, "Features"), el("tbody", {}, lines)));
    }
    if (note) parts.push(el("p", { class: "muted small" }, note));
    return el("article", { class: "card item", "aria-label": `Item ${item.id}` }, parts);
  }

  makePanel(item) {
    const isRandom = item.reason === "random";
    const labels = this.app.state.labels;
    const why = isRandom
      ? "Drawn at random, to measure quality. Answer all its labels, then press A."
      : "Many errors are expected here.";
    const known = [
      ...item.observed.map((column) => el("span", { class: "pill seen" }, labels[column])),
      ...item.absent.map((column) => el("span", { class: "pill absent" }, `not ${labels[column]}`)),
    ];
    this.doubtful = el("div", { class: "labels", id: "doubtful" });
    const extra = this.answeredBefore.filter((column) => !item.doubtful.includes(column));
    for (const column of [...item.doubtful, ...extra]) this.doubtful.append(this.makeLabel(column));
    const n = item.others.filter((column) => !extra.includes(column)).length;
    return el(
      "div",
      { class: "panel" },
      el(
        "div",
        { class: "panel-head" },
        el("span", { class: `badge ${isRandom ? "random" : ""}` }, isRandom ? "Random item" : "In doubt"),
        el("span", { class: "muted small id", title: item.id }, `Item ${item.id}`),
        el("span", { class: "muted small counts", id: "counts" }),
      ),
      el("h1", {}, "Which of these apply?"),
      el("p", { class: "muted small why" }, why),
      known.length ? el("p", { class: "known" }, el("span", { class: "muted small" }, "Known: "), known) : null,
      this.doubtful,
      n
        ? el(
            "div",
            { class: "others" },
            el(
              "div",
              { class: "search" },
              el("label", { for: "search" }, `${plural(n, "other label")}`),
              el("input", { id: "search", type: "search", placeholder: "Search  /", autocomplete: "off", oninput: () => this.fillOthers() }),
            ),
            el("div", { class: "labels", id: "others" }),
          )
        : null,
      this.makeActions(),
    );
  }

  makeActions() {
    const button = (text, key, name, work) =>
      el("button", { type: "button", class: name, onclick: work, "aria-keyshortcuts": key }, text, " ", el("kbd", { "aria-hidden": "true" }, key));
    this.scores = el("button", { type: "button", class: "quiet small", onclick: () => this.toggleScores(), "aria-keyshortcuts": "H" });
    return el(
      "div",
      { class: "actions" },
      el(
        "div",
        { class: "row" },
        button("Next item", "Enter", "primary next", () => this.finish({ outcome: "done" })),
        button("All others absent", "A", "absent-all", () => this.finish({ outcome: "done", others_absent: true })),
      ),
      el(
        "div",
        { class: "row minor" },
        this.makeUndo(),
        button("Skip item", "X", "quiet small", () => this.finish({ outcome: "skipped" })),
        this.scores,
      ),
    );
  }

  makeUndo() {
    return el("button", { type: "button", class: "quiet small undo", onclick: () => this.undo(), "aria-keyshortcuts": "Z" }, "Undo ", el("kbd", { "aria-hidden": "true" }, "Z"));
  }

  makeLabel(column) {
    const name = this.app.state.labels[column];
    const p = this.item.probability[column];
    const isSuggested = this.item.suggested.includes(column);
    const buttons = VALUES.map(([value, text, key]) =>
      el(
        "button",
        { type: "button", class: `value ${value}`, "data-value": value, "aria-label": `${text}: ${name}`, "aria-pressed": "false", title: `${text} (${key})`, onclick: () => { this.current = column; this.answer(column, value); } },
        text,
      ),
    );
    const score = el("span", { class: "score" }, el("span", { class: "bar" }, el("i", { width: `${100 * p}%` })), el("span", { class: "number" }, percent(p)));
    return el(
      "div",
      { class: "label", role: "group", tabindex: "-1", "aria-label": name, "data-column": column, onfocusin: () => this.follow(column) },
      el("span", { class: "name" }, el("span", { class: "word" }, name), isSuggested ? el("span", { class: "hint" }, "suggested") : null),
      score,
      el("span", { class: "values" }, buttons),
    );
  }

  follow(column) {
    if (this.current !== column) {
      this.current = column;
      for (const row of this.root.querySelectorAll(".label")) row.classList.toggle("current", Number(row.dataset.column) === column);
    }
  }

  fillOthers() {
    const box = $("others");
    if (box) {
      const wanted = $("search").value.trim().toLowerCase();
      const shown = new Set([...this.doubtful.children].map((row) => Number(row.dataset.column)));
      const names = this.app.state.labels;
      const rest = wanted
        ? [...this.item.others, ...this.item.observed, ...this.item.absent].filter((column) => names[column].toLowerCase().includes(wanted))
        : this.item.others;
      const found = rest.filter((column) => !shown.has(column));
      box.replaceChildren(...found.slice(0, OTHERS_SHOWN).map((column) => this.makeLabel(column)));
      if (wanted && !found.length) box.append(el("p", { class: "muted small" }, "No other label has this in its name."));
      else if (found.length > OTHERS_SHOWN) box.append(el("p", { class: "muted small" }, `and ${number(found.length - OTHERS_SHOWN)} more: search by name`));
    }
    this.rows = [...this.root.querySelectorAll(".label")].map((row) => Number(row.dataset.column));
    this.update();
  }

  mark(column) {
    // An answered label of the search moves to the list, so that it stays in sight.
    const row = this.root.querySelector(`#others .label[data-column="${column}"]`);
    if (row && $("search").value) {
      this.doubtful.append(row);
      $("search").value = "";
      this.fillOthers();
    }
  }

  update() {
    if (!this.item) return;
    for (const row of this.root.querySelectorAll(".label")) {
      const answer = this.item.answers[row.dataset.column];
      row.dataset.answer = answer || "";
      for (const button of row.querySelectorAll(".value")) {
        button.setAttribute("aria-pressed", String(button.dataset.value === answer));
      }
    }
    this.root.classList.toggle("blind", this.isHidden);
    this.scores.replaceChildren(this.isHidden ? "Show scores " : "Hide scores ", el("kbd", { "aria-hidden": "true" }, "H"));
    const isRandom = this.item.reason === "random";
    const isAnswered = this.item.doubtful.every((column) => this.item.answers[column]);
    const actions = this.root.querySelector(".actions");
    actions.querySelector(".next").classList.toggle("ready", isAnswered && !isRandom);
    actions.querySelector(".next").classList.toggle("primary", !isRandom);
    actions.querySelector(".absent-all").classList.toggle("primary", isRandom);
    $("counts").textContent = `${number(this.app.counts.done)} of ${number(this.app.counts.items)} done, ${number(this.app.counts.mine)} by you`;
    this.root.querySelector(".undo").disabled = !this.undoable.length;
  }
}
