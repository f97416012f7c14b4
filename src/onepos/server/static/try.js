// One row, text or image through the model.

import { call } from "./api.js";
import { $, el, percent } from "./dom.js";

const MOST_LABELS = 15;

export class Try {
  constructor(app) {
    this.app = app;
    this.root = $("try");
  }

  async enter() {
    if (this.root.childElementCount) return;
    try {
      this.about = await this.app.retry(() => call("GET", "/api/try"));
    } catch {
      return;
    }
    this.result = el("section", { class: "card result", "aria-live": "polite", "aria-label": "Prediction" }, el("p", { class: "muted" }, "The predicted labels appear here."));
    this.root.append(
      el("header", { class: "page-head" }, el("h1", {}, "Try one"), el("p", { class: "lead" }, `What does the model say about ${this.about.image ? "an image" : "a row"} it has not seen?`)),
      el("div", { class: "desk even" }, this.about.image ? this.makeImageForm() : this.makeRowForm(), this.result),
    );
  }

  makeImageForm() {
    const preview = el("div", { class: "frame empty" }, el("span", { class: "muted" }, "Drop an image here, or choose a file"));
    const send = async (file) => {
      if (!file) return;
      if (this.address) URL.revokeObjectURL(this.address);
      this.address = URL.createObjectURL(file);
      const picture = el("img", { src: this.address, alt: "The chosen image", class: "picture" });
      picture.addEventListener("load", () => picture.classList.toggle("tiny", picture.naturalWidth <= 64));
      preview.replaceChildren(picture);
      preview.classList.remove("empty");
      await this.ask(() => call("POST", "/api/try/image", file, file.type || "image/png"));
    };
    preview.addEventListener("dragover", (event) => event.preventDefault());
    preview.addEventListener("drop", (event) => {
      event.preventDefault();
      send(event.dataTransfer.files[0]);
    });
    return el(
      "section",
      { class: "card", "aria-label": "Image" },
      preview,
      el(
        "div",
        { class: "row spaced" },
        el("input", { type: "file", id: "try-file", accept: "image/*", class: "sr", onchange: (event) => send(event.target.files[0]) }),
        el("label", { class: "button primary", for: "try-file" }, "Choose an image"),
        el("button", { type: "button", onclick: () => this.fromData(send) }, "One of the data"),
      ),
    );
  }

  async fromData(send) {
    const row = Math.floor(Math.random() * this.app.counts.items);
    const response = await fetch(`/api/items/${row}/image`);
    if (response.ok) await send(await response.blob());
  }

  makeRowForm() {
    const { fields, features } = this.about;
    const inputs = fields.map(({ name, kind }, k) => {
      const id = `field-${k}`;
      const input = kind === "long" ? el("textarea", { id, name, rows: 6 }) : el("input", { id, name, type: "text", inputmode: kind === "number" ? "decimal" : "text", autocomplete: "off" });
      return el("div", { class: "field" }, el("label", { for: id }, name), input);
    });
    const whole = fields.length ? null : el("textarea", { id: "whole", rows: 10, spellcheck: "false", placeholder: "[0.1, 0.7, …]" });
    if (whole) inputs.push(el("div", { class: "field" }, el("label", { for: "whole" }, `${features} values as JSON: a list, or names with values`), whole));
    const form = el(
      "form",
      { class: "card", "aria-label": "Row" },
      inputs,
      el(
        "div",
        { class: "row spaced" },
        el("button", { type: "submit", class: "primary" }, "Predict"),
        el("button", { type: "button", onclick: () => this.fill(form, whole) }, "Fill in a row of the data"),
      ),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask(() => {
        const row = whole ? JSON.parse(whole.value) : Object.fromEntries(fields.map(({ name }, k) => [name, $(`field-${k}`).value]));
        return call("POST", "/api/try", { row });
      });
    });
    return form;
  }

  async fill(form, whole) {
    const row = Math.floor(Math.random() * this.app.counts.items);
    const found = await this.app.retry(() => call("GET", `/api/try/example/${row}`));
    if (whole) whole.value = JSON.stringify(Object.values(found.row));
    else this.about.fields.forEach(({ name }, k) => ($(`field-${k}`).value = found.row[name] ?? ""));
    form.requestSubmit();
  }

  async ask(work) {
    let found;
    try {
      found = await work();
    } catch (problem) {
      const text = problem instanceof SyntaxError ? "the values must be JSON, such as [0.1, 0.7]." : problem.message;
      this.result.replaceChildren(el("p", { class: "alert still" }, `${text[0].toUpperCase()}${text.slice(1)}`));
      return;
    }
    const shown = found.labels.slice(0, MOST_LABELS);
    const chosen = found.labels.filter((line) => line.predicted);
    this.result.replaceChildren(
      el("h2", {}, "Predicted"),
      el("p", { class: "known" }, chosen.length ? chosen.map((line) => el("span", { class: "pill seen" }, line.label)) : "No label is probable enough."),
      el("h3", {}, "Probabilities"),
      el(
        "ul",
        { class: "guesses" },
        shown.map((line) =>
          el("li", { class: line.predicted ? "predicted" : "" }, el("span", { class: "word" }, line.label), el("span", { class: "bar" }, el("i", { width: `${100 * line.probability}%` })), el("span", { class: "number" }, percent(line.probability, 1))),
        ),
      ),
      found.labels.length > MOST_LABELS ? el("p", { class: "muted small" }, `and ${found.labels.length - MOST_LABELS} less probable labels`) : "",
    );
  }
}
