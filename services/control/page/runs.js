// The list of runs: one card each, kept and updated in place.

import { get, post, remove, runPath } from "./api.js";
import { byId, duration, make, percent, rate, setText, show } from "./dom.js";

const TONES = { running: "good", queued: "wait", stopping: "wait", stopped: "wait", idle: "wait", finished: "done", failed: "bad" };
const ORDER = ["running", "stopping", "queued"];

export class RunList {
  constructor(notify) {
    this.notify = notify;
    this.list = byId("run-list");
    this.cards = new Map();
  }

  keep(exists) {
    for (const id of [...this.cards.keys()]) if (!exists(id)) this.update(id, null);
  }

  update(id, run) {
    if (run === null) {
      this.cards.get(id)?.element.remove();
      this.cards.delete(id);
    } else {
      if (!this.cards.has(id)) this.cards.set(id, new RunCard(id, this.notify));
      this.cards.get(id).update(run);
      this.place(this.cards.get(id));
    }
    show(byId("no-runs"), this.cards.size === 0);
  }

  // Those at work first, then the newest.
  place(card) {
    const rank = ({ run }) => [ORDER.includes(run.state) ? ORDER.indexOf(run.state) : ORDER.length, -(run.created_s ?? 0)];
    const before = (a, b) => a[0] - b[0] || a[1] - b[1];
    const next = [...this.list.children].find((other) => other !== card.element && before(rank(card), rank(other.card)) < 0);
    if (card.element.parentNode !== this.list || card.element.nextElementSibling !== (next ?? null)) {
      const focused = card.element.contains(document.activeElement) ? document.activeElement : null;
      this.list.insertBefore(card.element, next ?? null);
      focused?.focus();
    }
  }

  inOrder() {
    return [...this.list.children].map((element) => element.card.run);
  }
}

class RunCard {
  constructor(id, notify) {
    this.id = id;
    this.notify = notify;
    this.state = make("p", { class: "chip" });
    this.facts = make("p", { class: "facts" });
    this.bar = make("progress", { max: 1, value: 0, "aria-label": `progress of ${id}` });
    this.amount = make("span");
    this.pace = make("span");
    this.numbers = make("div", { class: "numbers" }, this.amount, this.pace);
    this.stages = make("ol", { class: "stages", "aria-label": "stages" });
    this.success = make("p", { class: "facts" });
    this.causes = make("div", { class: "causes-list" });
    this.error = make("p", { class: "fault" });
    this.message = make("p", { class: "facts" });
    this.buttons = {
      stop: make("button", { type: "button", onclick: () => this.act(() => post(runPath(id, "/stop"))) }, "Stop"),
      resume: make("button", { type: "button", onclick: () => this.act(() => post(runPath(id, "/resume"))) }, "Resume"),
      delete: make("button", { type: "button", onclick: () => this.trash() }, "Delete"),
    };
    for (const [name, button] of Object.entries(this.buttons)) button.setAttribute("aria-label", `${name} run ${id}`);
    this.more = make("details", { ontoggle: () => this.loadMore() }, make("summary", {}, "Results and log"));
    this.moreBody = make("div", {});
    this.more.append(this.moreBody);
    this.element = make("article", { class: "run", "aria-label": `run ${id}` },
      make("div", { class: "title-row" }, make("h3", {}, id), this.state), this.facts, this.bar, this.numbers, this.stages,
      this.success, this.causes, this.message, this.error, make("div", { class: "actions" }, ...Object.values(this.buttons)), this.more);
    this.element.dataset.run = id;
    this.element.card = this;
  }

  update(run) {
    this.run = run;
    setText(this.state, run.state);
    this.state.dataset.tone = TONES[run.state];
    this.element.dataset.state = run.state;
    const from = run.seeds ? `seeds ${run.seeds}` : "";
    const wanted = run.demos ? `${run.demos} demos` : "";
    const who = run.owner === "control" ? "" : "started on the command line";
    const again = run.crashes ? `restarted ${run.crashes} times` : "";
    setText(this.facts, [run.task, wanted, run.preset && `preset ${run.preset}`, from, ...run.overrides, who, again].filter(Boolean).join(" · "));
    this.showProgress(run);
    this.showOutcomes(run.outcomes);
    setText(this.error, run.error);
    show(this.error, run.error !== "");
    const starting = run.stages.some((one) => one.state === "running") ? "" : "starting; this takes some seconds";
    const last = run.state === "running" ? run.messages.at(-1) ?? starting : "";
    setText(this.message, last);
    show(this.message, last !== "");
    for (const [name, button] of Object.entries(this.buttons)) {
      show(button, run.actions.includes(name));
      button.disabled = false;
    }
  }

  showProgress(run) {
    const stage = run.stages.find((one) => one.state === "running");
    const active = stage !== undefined;
    show(this.bar, active);
    show(this.numbers, active);
    if (active) {
      this.bar.max = Math.max(1, stage.total);
      this.bar.value = stage.done;
      setText(this.amount, `${stage.name}: ${stage.done} of ${stage.total} ${stage.unit}${stage.note ? `, ${stage.note}` : ""}`);
      const pace = stage.rate_per_s ? rate(stage.rate_per_s, stage.unit) : "";
      setText(this.pace, [pace, stage.eta_s ? `${duration(stage.eta_s)} left` : ""].filter(Boolean).join(", "));
    }
    const key = run.stages.map((one) => one.name + one.state).join();
    show(this.stages, active || run.state === "stopped" || run.state === "failed");
    if (key === this.stageKey) return;
    this.stageKey = key;
    const mark = { done: "✓", running: "▸", waiting: "·" };
    this.stages.replaceChildren(...run.stages.map((one) =>
      make("li", { "data-state": one.state, "aria-label": `${one.name}: ${one.state}` }, `${mark[one.state]} ${one.name}`)));
  }

  showOutcomes(outcomes) {
    const key = JSON.stringify(outcomes);
    if (key === this.outcomeKey) return;
    this.outcomeKey = key;
    const told = (what, share) => `${what} ${share.count} of ${share.of} (95 %: ${percent(share.low)} to ${percent(share.high)})`;
    const { succeeded, verified, causes, replay_causes: replays } = outcomes;
    setText(this.success, succeeded.of === 0 ? "" : [told("succeeded", succeeded), verified.of ? told("verified", verified) : ""].filter(Boolean).join(" · "));
    show(this.success, succeeded.of > 0);
    this.causes.replaceChildren(...causeBars("Why attempts failed", causes), ...causeBars("Why replays failed", replays));
  }

  async act(request) {
    for (const button of Object.values(this.buttons)) button.disabled = true;
    try {
      this.update(await request());
      this.notify("");
    } catch (error) {
      this.notify(`${this.id}: ${error.message}`);
      this.update(this.run);
    }
  }

  trash() {
    const dialog = byId("confirm");
    setText(byId("confirm-text"), `Move run ${this.id} to the trash? Its folder is kept there.`);
    dialog.returnValue = "no";
    dialog.addEventListener("close", async () => {
      if (dialog.returnValue !== "yes") return;
      try {
        this.notify((await remove(runPath(this.id))).text);
      } catch (error) {
        this.notify(`${this.id}: ${error.message}`);
      }
    }, { once: true });
    dialog.showModal();
  }

  async loadMore() {
    if (!this.more.open) return;
    try {
      const [results, log] = await Promise.all([get(runPath(this.id, "/results")), get(runPath(this.id, "/log?lines=100"))]);
      const link = (url, text) => make("a", { href: url, target: "_blank", rel: "noopener" }, text);
      const { dataset } = results;
      this.moreBody.replaceChildren(
        make("p", { class: "facts" }, results.report_url ? link(results.report_url, "Report") : "No report yet"),
        make("p", { class: "facts" }, dataset ? `Dataset: ${dataset.path}, ${dataset.episodes ?? "?"} episodes, ${dataset.frames ?? "?"} frames at ${dataset.fps ?? "?"} fps` : "No dataset yet"),
        make("pre", { tabIndex: 0, "aria-label": "log" }, log.lines.length ? log.lines.join("\n") : "The log is empty."),
        make("button", { type: "button", onclick: () => this.loadMore() }, "Refresh"));
    } catch (error) {
      this.moreBody.replaceChildren(make("p", { class: "fault" }, error.message));
    }
  }
}

function causeBars(title, causes) {
  if (causes.length === 0) return [];
  return [make("h4", {}, title), ...causes.map(({ cause, share }) => {
    const bar = make("progress", { class: "causes", max: Math.max(1, share.of), value: share.count, "aria-label": cause });
    const interval = `95 %: ${percent(share.low)} to ${percent(share.high)}`;
    return make("div", { class: "cause", title: interval }, make("span", { class: "name" }, cause), bar,
      make("span", { class: "n" }, `${share.count} of ${share.of}`));
  })];
}
