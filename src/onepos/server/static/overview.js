// Priors with intervals, quality, calibration, improving, files.

import { call } from "./api.js";
import { $, el, number, percent, plural, svg } from "./dom.js";

export class Overview {
  constructor(app) {
    this.app = app;
    this.root = $("overview");
  }

  async enter() {
    if (!this.root.childElementCount) this.root.append(el("p", { class: "muted wait" }, "Loading …"));
    await this.app.outbox.idle;
    await this.load();
    this.watch(await this.app.retry(() => call("GET", "/api/improve")));
  }

  leave() {
    clearTimeout(this.timer);
  }

  async load() {
    this.data = await this.app.retry(() => call("GET", "/api/overview"));
    this.app.setCounts(this.data.counts);
    const data = this.data;
    this.root.replaceChildren(
      el(
        "header",
        { class: "page-head" },
        el("h1", {}, data.name),
        el(
          "p",
          { class: "lead" },
          `${plural(data.counts.items, "item")}, ${plural(this.app.state.labels.length, "label")}. `,
          `${data.observed_per_row.toFixed(2)} labels per item were written down; about ${data.labels_per_row.toFixed(2)} are there.`,
        ),
      ),
      data.warning ? el("p", { class: "alert still" }, data.warning) : "",
      this.makeTiles(data),
      this.makeImprove(data),
      this.makeLabels(data),
      this.makeCalibration(data),
      el("div", { class: "pair" }, this.makePeople(data), this.makeFiles()),
    );
  }

  makeTiles(data) {
    const tile = (value, text) => el("li", {}, el("strong", {}, value), el("span", {}, text));
    return el(
      "ul",
      { class: "tiles" },
      tile(number(data.counts.done), `of ${number(data.counts.items)} items reviewed`),
      tile(number(data.counts.answers), `answers: ${number(data.values.yes)} yes, ${number(data.values.no)} no, ${number(data.values.unsure)} unsure`),
      tile(number(data.added), `${data.added === 1 ? "label" : "labels"} can be added`),
      tile(percent(data.expected_precision), "of them are expected to be right"),
    );
  }

  makeImprove(data) {
    this.button = el("button", { type: "button", class: "primary", onclick: () => this.improve() }, "Improve");
    this.step = el("p", { class: "muted", role: "status" });
    const last = data.improvements.at(-1);
    const n = data.counts.new_answers;
    this.button.disabled = n === 0;
    return el(
      "section",
      { class: "card", "aria-labelledby": "improve-title" },
      el("h2", { id: "improve-title" }, "Improve"),
      el(
        "p",
        {},
        n === 0
          ? "There are no answers since the rows were last judged. Review some items, then come back."
          : `${plural(n, "answer")} since the rows were last judged. The models learn from them and judge every row again; reviewing can go on meanwhile.`,
      ),
      el("div", { class: "row" }, this.button, this.step),
      last ? this.makeChange(last) : "",
    );
  }

  makeChange(result) {
    const change = (name, [before, after], show) =>
      el("li", {}, el("span", {}, name), el("strong", {}, show(after)), el("span", { class: "muted" }, `before ${show(before)}`));
    const moved = result.labels
      .filter((line) => line.prior[0] !== null && line.prior[1] !== null)
      .sort((a, b) => Math.abs(b.prior[1] - b.prior[0]) - Math.abs(a.prior[1] - a.prior[0]))
      .slice(0, 5);
    const arrow = ([before, after], digits) => `${percent(before, digits)} → ${percent(after, digits)}`;
    return el(
      "div",
      { class: "change" },
      el("h3", {}, "What the last improvement changed"),
      el(
        "ul",
        { class: "tiles small-tiles" },
        change("labels that can be added", result.added, number),
        change("expected precision", result.expected_precision, (value) => percent(value, 1)),
        change("labels per item", result.labels_per_row, (value) => value?.toFixed(2) ?? "–"),
        change("random items it rests on", result.calibrated_on, number),
      ),
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Labels that changed most" },
        el(
          "table",
          {},
          el("caption", {}, "Labels whose share changed most"),
          el("thead", {}, el("tr", {}, ["label", "share", "precision", "added"].map((name) => el("th", { scope: "col" }, name)))),
          el(
            "tbody",
            {},
            moved.map((line) =>
              el(
                "tr",
                {},
                el("th", { scope: "row" }, line.label),
                el("td", {}, arrow(line.prior, 1)),
                el("td", {}, arrow(line.expected_precision, 0)),
                el("td", {}, `${number(line.added[0])} → ${number(line.added[1])}`),
              ),
            ),
          ),
        ),
      ),
      el("p", { class: "muted small" }, `With ${plural(result.answers, "answer")}, in ${result.seconds} s.`, result.model ? ` The improved model is in ${result.model}.` : ""),
    );
  }

  async improve() {
    this.button.disabled = true;
    await this.app.outbox.idle;
    this.watch(await this.app.retry(() => call("POST", "/api/improve")));
  }

  watch(progress) {
    clearTimeout(this.timer);
    if (progress.state === "running") {
      this.button.disabled = true;
      const part = progress.steps > 1 ? `, ${progress.done} of ${progress.steps}` : "";
      this.step.textContent = `${progress.step}${part} … ${Math.round(progress.seconds)} s`;
      this.wasRunning = true;
      this.timer = setTimeout(async () => this.watch(await this.app.retry(() => call("GET", "/api/improve"))), 700);
      return;
    }
    if (this.wasRunning) {
      this.wasRunning = false;
      this.load().then(() => {
        this.step.textContent = progress.state === "failed" ? `It failed: ${progress.error}` : "Done.";
      });
    } else if (progress.state === "failed") this.step.textContent = `It failed: ${progress.error}`;
  }

  makeLabels(data) {
    const top = Math.max(0.01, ...data.labels.map((line) => Math.max(line.prior_high ?? 0, line.prior ?? 0, line.observed / data.counts.items)));
    const scale = Math.min(1, top * 1.05);
    const order = [...data.labels].sort((a, b) => (b.prior ?? 0) - (a.prior ?? 0));
    const rows = order.map((line) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, line.label),
        el("td", { class: "chart-cell" }, drawInterval(line, data.counts.items, scale)),
        el("td", {}, percent(line.observed / data.counts.items, 1)),
        el("td", {}, el("b", {}, percent(line.prior, 1)), el("span", { class: "below" }, `${percent(line.prior_low, 1)} – ${percent(line.prior_high, 1)}`)),
        el("td", {}, number(line.added)),
        el("td", {}, percent(line.expected_precision), line.added && line.precision_low !== undefined ? el("span", { class: "below" }, `${percent(line.precision_low)} – ${percent(line.precision_high)}`) : null),
        el("td", {}, percent(line.expected_recall)),
      ),
    );
    const heads = ["label", `0 to ${percent(scale)}`, "known", "estimated share", "added", "precision", "recall"];
    return el(
      "section",
      { class: "card", "aria-labelledby": "labels-title" },
      el("h2", { id: "labels-title" }, "Labels"),
      el("p", { class: "muted" }, `How common each label is, by estimate and with its interval; and the labels that can be added when at least ${percent(data.min_precision)} of them are to be right.`),
      el("p", { class: "legend small muted", "aria-hidden": "true" }, el("span", { class: "key-observed" }), "known", el("span", { class: "key-prior" }), "estimated, with interval"),
      el(
        "div",
        { class: `scroll${rows.length > 40 ? " tall" : ""}`, tabindex: "0", role: "region", "aria-label": "Table of the labels" },
        el("table", { class: "wide-table" }, el("thead", {}, el("tr", {}, heads.map((name, k) => el("th", { scope: "col", class: k === 1 ? "chart-cell" : "" }, name)))), el("tbody", {}, rows)),
      ),
    );
  }

  makeCalibration(data) {
    const { items, entries, bins, suggested } = data.calibration;
    const body = bins.length
      ? [
          el(
            "p",
            {},
            `Measured on ${plural(items, "random item")} with ${plural(entries, "answer")}, each with the probability that it had when it was given. `,
            suggested ? `Of ${plural(suggested.n, "suggested label")} ${number(suggested.yes)} were right: ${percent(suggested.share)} (${percent(suggested.low)} to ${percent(suggested.high)}).` : "",
          ),
          el("div", { class: "calibration" }, drawCalibration(bins), makeBins(bins)),
        ]
      : [el("p", { class: "muted" }, "No random item is fully reviewed yet. Some items of the review are drawn at random: answer all their labels and press A, and this chart shows whether stated probabilities hold.")];
    return el("section", { class: "card", "aria-labelledby": "calibration-title" }, el("h2", { id: "calibration-title" }, "Do the probabilities hold?"), body);
  }

  makePeople(data) {
    return el(
      "section",
      { class: "card", "aria-labelledby": "people-title" },
      el("h2", { id: "people-title" }, "Reviewers"),
      data.reviewers.length
        ? el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "name"), el("th", { scope: "col" }, "items"))), el("tbody", {}, data.reviewers.map((line) => el("tr", {}, el("th", { scope: "row" }, line.reviewer), el("td", {}, number(line.items))))))
        : el("p", { class: "muted" }, "Nobody has finished an item yet."),
    );
  }

  makeFiles() {
    const input = el("input", { type: "file", id: "import-file", accept: ".csv,.json,text/csv,application/json", class: "sr", onchange: (event) => this.import(event.target) });
    this.imported = el("p", { class: "muted small", role: "status" });
    return el(
      "section",
      { class: "card", "aria-labelledby": "files-title" },
      el("h2", { id: "files-title" }, "Answers as a file"),
      el("p", { class: "muted" }, "A long table with item, label, value, source and time, which “onepos complete --labels answers.csv --sample answers.csv” reads. Import also takes a JSON export of Label Studio."),
      el(
        "div",
        { class: "row" },
        el("a", { class: "button", href: "/api/export?format=csv", download: "answers.csv" }, "Export CSV"),
        el("a", { class: "button", href: "/api/export?format=json", download: "answers.json" }, "Export JSON"),
        input,
        el("label", { class: "button", for: "import-file" }, "Import …"),
      ),
      this.imported,
    );
  }

  async import(input) {
    const file = input.files[0];
    if (!file) return;
    try {
      const type = file.name.toLowerCase().endsWith(".json") ? "application/json" : "text/csv";
      const found = await call("POST", "/api/import", await file.arrayBuffer(), type);
      await this.load();
      this.imported.textContent = `${plural(found.imported, "answer")} imported, ${number(found.known)} were there already.`;
    } catch (problem) {
      this.imported.textContent = `Nothing was imported: ${problem.message}`;
    }
    input.value = "";
  }
}

function drawInterval(line, n, scale) {
  const x = (share) => 2 + (156 * Math.min(share, scale)) / scale;
  const picture = svg("svg", { viewBox: "0 0 160 20", preserveAspectRatio: "xMinYMid", class: "interval", role: "img", "aria-label": `${percent(line.prior, 1)}, from ${percent(line.prior_low, 1)} to ${percent(line.prior_high, 1)}; known ${percent(line.observed / n, 1)}` });
  picture.append(svg("line", { x1: 2, x2: 158, y1: 10, y2: 10, class: "axis" }));
  picture.append(svg("rect", { x: 2, y: 7, height: 6, rx: 3, width: Math.max(1, x(line.observed / n) - 2), class: "observed" }));
  if (line.prior !== null && line.prior !== undefined) {
    if (line.prior_low !== null) picture.append(svg("line", { x1: x(line.prior_low), x2: x(line.prior_high), y1: 10, y2: 10, class: "range" }));
    picture.append(svg("circle", { cx: x(line.prior), cy: 10, r: 5, class: "prior" }));
  }
  return picture;
}

function drawCalibration(bins) {
  const x = (share) => 42 + 250 * share;
  const y = (share) => 262 - 250 * share;
  const picture = svg("svg", { viewBox: "0 0 304 306", class: "calibration-chart", role: "img", "aria-label": "Share of yes against stated probability; the numbers are in the table" });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    picture.append(
      svg("line", { x1: x(0), x2: x(1), y1: y(share), y2: y(share), class: "grid" }),
      svg("text", { x: 34, y: y(share) + 4, "text-anchor": "end" }, `${100 * share}`),
      svg("text", { x: x(share), y: 280, "text-anchor": "middle" }, `${100 * share}`),
    );
  }
  picture.append(svg("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: "diagonal" }));
  for (const bin of bins) {
    picture.append(
      svg("line", { x1: x(bin.stated), x2: x(bin.stated), y1: y(bin.low), y2: y(bin.high), class: "range" }),
      svg("circle", { cx: x(bin.stated), cy: y(bin.share), r: Math.min(9, 3 + Math.sqrt(bin.n) / 3), class: "prior" }),
    );
  }
  picture.append(svg("text", { x: 167, y: 301, "text-anchor": "middle" }, "stated probability, %"), svg("text", { x: 42, y: 8 }, "share of yes, %"));
  return picture;
}

function makeBins(bins) {
  const heads = ["stated", "yes", "share", "interval"];
  return el(
    "table",
    {},
    el("thead", {}, el("tr", {}, heads.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, bins.map((bin) => el("tr", {}, el("th", { scope: "row" }, percent(bin.stated)), el("td", {}, `${bin.yes} of ${bin.n}`), el("td", {}, percent(bin.share)), el("td", {}, `${percent(bin.low)} – ${percent(bin.high)}`)))),
  );
}
