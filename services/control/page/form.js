// The form that starts a run.

import { get, post } from "./api.js";
import { byId, make, setText, show } from "./dom.js";

export class StartForm {
  constructor(notify) {
    this.notify = notify;
    this.form = byId("start");
    this.fault = byId("start-fault");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
  }

  async load() {
    const options = await get("/api/options");
    const { task, preset, seeds, demos } = this.form.elements;
    const option = (value, text) => make("option", { value }, text);
    task.replaceChildren(...Object.entries(options.tasks).map(([name, text]) => make("option", { value: name, title: text }, name)));
    task.value = options.task;
    preset.replaceChildren(option("", "none"), ...Object.keys(options.presets).map((name) => option(name, name)));
    seeds.replaceChildren(option("", "scripted operator"), ...options.recordings.map((path) => option(path, path)));
    demos.placeholder = String(options.demos);
  }

  request() {
    const { name, task, preset, seeds, demos, workers, overrides } = this.form.elements;
    const number = (field) => (field.value.trim() === "" ? null : Number(field.value));
    return {
      name: name.value.trim() || null,
      task: task.value || null,
      preset: preset.value || null,
      seeds: seeds.value || null,
      demos: number(demos),
      workers: number(workers),
      overrides: overrides.value.split("\n").map((line) => line.trim()).filter(Boolean),
    };
  }

  async submit() {
    const button = this.form.querySelector("button[type=submit]");
    button.disabled = true;
    try {
      const run = await post("/api/runs", this.request());
      show(this.fault, false);
      this.form.elements.name.value = "";
      this.notify(run.state === "queued" ? `${run.id} waits for its turn.` : "");
      document.querySelector(`[data-run="${CSS.escape(run.id)}"]`)?.scrollIntoView({ block: "nearest" });
    } catch (error) {
      setText(this.fault, error.message);
      show(this.fault, true);
    } finally {
      button.disabled = false;
    }
  }
}
