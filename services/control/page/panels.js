// Arm, cameras, workers, policy server, datasets, videos.

import { get, getPicture, post } from "./api.js";
import { byId, duration, make, setText, show, size, table } from "./dom.js";

const FRAME_PAUSE_MS = 500;
const STOCK_PAUSE_MS = 15000;
const absent = (problem) => make("p", { class: "none" }, problem);

export class ArmPanel {
  constructor(notify) {
    const tell = (button, path) => button.addEventListener("click", async () => {
      try {
        notify((await post(path)).text);
      } catch (error) {
        notify(error.message);
      }
    });
    tell(byId("stop-arm"), "/api/arm/stop");
    tell(byId("home-arm"), "/api/arm/home");
  }

  update(service) {
    const arm = service?.values ?? {};
    const mode = byId("arm-mode");
    setText(mode, service?.running ? arm.mode : "not running");
    mode.dataset.tone = { following: "good", holding: "good", returning: "good", stopped: "bad", stuck: "bad", lost: "bad" }[arm.mode] ?? "wait";
    byId("home-arm").disabled = !(service?.running && arm.may_arm && arm.armed);
    if (!service?.running) return byId("arm").replaceChildren(absent(service?.problem ?? ""));
    const lines = [arm.commander ? `commanded by ${arm.commander}` : "", arm.reason, arm.may_arm ? "" : "started without --arm: it cannot move", ...arm.warnings];
    byId("arm").replaceChildren(
      ...lines.filter(Boolean).map((text) => make("p", { class: "facts" }, text)),
      table(["Joint", "deg", "load %", "°C", "V"], arm.joints.map((joint) =>
        [joint.name.replaceAll("_", " "), Math.round(joint.q_rad * 1800 / Math.PI) / 10, joint.load_pct, joint.temperature_c, joint.voltage_v])));
  }
}

export class CameraPanel {
  constructor() {
    this.views = new Map();
    document.addEventListener("visibilitychange", () => this.views.forEach((view) => view.next()));
  }

  update(service) {
    const cameras = service?.values.cameras ?? [];
    show(byId("no-cameras"), !service?.running);
    setText(byId("no-cameras"), service?.problem ?? "");
    for (const camera of cameras) {
      if (!this.views.has(camera.name)) this.views.set(camera.name, new CameraView(camera.name));
      this.views.get(camera.name).update(camera);
    }
  }
}

class CameraView {
  constructor(name) {
    this.name = name;
    this.live = false;
    this.waiting = false;
    this.image = make("img", { alt: `picture of camera ${name}`, width: 320, height: 240 });
    this.caption = make("figcaption");
    this.element = make("figure", {}, this.image, this.caption);
    byId("cameras").append(this.element);
  }

  update(camera) {
    const details = [camera.mode, camera.state === "live" ? "" : camera.state, camera.dropped ? `${camera.dropped} dropped` : "", camera.error];
    setText(this.caption, [this.name, ...details].filter(Boolean).join(", "));
    show(this.element, camera.state !== "absent");
    const started = camera.state === "live" && !this.live;
    this.live = camera.state === "live";
    if (started && !this.waiting) this.next();
  }

  // The picture before stays until the next one is there.
  async next() {
    if (!this.live || this.waiting || document.hidden) return;
    this.waiting = true;
    const picture = await getPicture(`/api/cameras/${encodeURIComponent(this.name)}/frame.jpg`);
    if (picture) {
      const before = this.image.src;
      this.image.src = URL.createObjectURL(picture);
      if (before) URL.revokeObjectURL(before);
    }
    setTimeout(() => { this.waiting = false; this.next(); }, picture ? FRAME_PAUSE_MS : 4 * FRAME_PAUSE_MS);
  }
}

export function updateWorkers(service) {
  const place = byId("workers");
  if (!service?.running) return place.replaceChildren(absent(service?.problem ?? ""));
  const { workers, batches } = service.values;
  const rows = workers.map((one) => [`${one.host} ${one.pid}`, one.kinds.join(", "), one.job || one.state, one.done, one.rate_per_min]);
  const lost = (batch) => (batch.lost ? `, ${batch.lost} workers lost` : "");
  place.replaceChildren(
    workers.length ? table(["Worker", "Takes", "Now", "Done", "A minute"], rows) : absent("No worker is connected: runs use processes of their own. `./twin serve generator` starts one."),
    ...batches.map((batch) => make("p", { class: "facts" }, `${batch.kind} of ${batch.run}: ${batch.queued} wait, ${batch.running} at work, ${batch.done} done${lost(batch)}`)));
}

export function updatePolicy(service) {
  const place = byId("policy");
  if (!service?.running) return place.replaceChildren(absent(service?.problem ?? ""));
  const { requests = {}, infer_ms: infer = {}, errors, expired, policy, uptime_s: uptime, note } = service.values;
  if (note) return place.replaceChildren(absent(note));
  const facts = [
    ["Policy", policy], ["Up for", uptime === undefined ? undefined : duration(uptime)], ["Actions asked for", requests.get_action ?? 0],
    ["Inference, ms", infer.p50 === undefined ? undefined : `${infer.p50} median, ${infer.p99} at p99`], ["Errors", errors], ["Expired", expired],
  ];
  place.replaceChildren(table(["", ""], facts.filter(([, value]) => value !== undefined).map(([name, value]) => [name, String(value)])));
}

export class StockPanel {
  async load() {
    try {
      const [datasets, checkpoints] = await Promise.all([get("/api/datasets"), get("/api/checkpoints")]);
      byId("stock").replaceChildren(
        datasets.length
          ? table(["Dataset", "Episodes", "fps", "Size"], datasets.map((one) => [one.problem ? `${one.path}: ${one.problem}` : one.path, one.episodes ?? "?", one.fps ?? "?", size(one.size_bytes)]))
          : absent("No dataset yet."),
        checkpoints.length
          ? table(["Checkpoint", "Files", "Size"], checkpoints.map((one) => [one.role, one.files, size(one.size_bytes)]))
          : absent("No checkpoint yet."));
    } catch {
      // told by the chip in the bar; tried again
    }
    setTimeout(() => this.load(), STOCK_PAUSE_MS);
  }
}

export class VideoPanel {
  constructor(runs) {
    this.runs = runs; // () => all runs, those at work first
    this.select = byId("video-run");
    this.select.addEventListener("change", () => { this.chosen = this.select.value; this.load(); });
    setInterval(() => this.load(), STOCK_PAUSE_MS / 3);
  }

  refresh() {
    const withVideos = this.runs().filter((run) => run.outcomes.verified.count > 0).map((run) => run.id);
    const key = withVideos.join("\n");
    if (key === this.key) return;
    this.key = key;
    this.select.replaceChildren(...withVideos.map((id) => make("option", { value: id }, id)));
    if (withVideos.includes(this.chosen)) this.select.value = this.chosen;
    this.load();
  }

  async load() {
    show(this.select.parentElement, this.select.options.length > 0);
    if (!this.select.value || document.hidden) return this.draw([]);
    try {
      this.draw(await get(`/api/videos?demos=2&run=${encodeURIComponent(this.select.value)}`));
    } catch {
      this.draw([]);
    }
  }

  draw(videos) {
    if (document.hidden) return;
    const key = videos.map((video) => video.url).join("\n");
    show(byId("no-videos"), videos.length === 0);
    if (key === this.drawn) return;
    this.drawn = key;
    const demos = [...new Set(videos.map((video) => video.demo))];
    byId("videos").replaceChildren(...demos.map((demo) => make("div", {},
      make("p", { class: "facts" }, `demo ${demo}`),
      make("div", { class: "views" }, ...videos.filter((video) => video.demo === demo).map((video) =>
        make("figure", {},
          make("video", { src: `${video.url}#t=0.01`, controls: true, muted: true, loop: true, playsInline: true, preload: "metadata", "aria-label": `demo ${demo}, camera ${video.camera}` }),
          make("figcaption", {}, video.camera)))))));
  }
}
