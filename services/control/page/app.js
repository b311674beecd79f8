// Puts the page together: the event stream feeds the panels.

import { post, whenUnauthorized } from "./api.js";
import { byId, setText, show } from "./dom.js";
import { StartForm } from "./form.js";
import { listen } from "./live.js";
import { ArmPanel, CameraPanel, StockPanel, updatePolicy, updateWorkers, VideoPanel } from "./panels.js";
import { RunList } from "./runs.js";

function notify(text) {
  setText(byId("notice"), text);
  show(byId("notice"), text !== "");
}

function setLink(text, tone) {
  setText(byId("link"), text);
  byId("link").dataset.tone = tone;
}

function askForToken() {
  const dialog = byId("login");
  if (!dialog.open) dialog.showModal();
}

byId("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await post("/api/login", { token: event.target.elements.token.value });
    location.reload();
  } catch (error) {
    setText(byId("login-fault"), error.message);
    show(byId("login-fault"), true);
  }
});
whenUnauthorized(askForToken);

const runs = new RunList(notify);
const arm = new ArmPanel(notify);
const cameras = new CameraPanel();
const videos = new VideoPanel(() => runs.inOrder());
const panels = { arm: (value) => arm.update(value), cameras: (value) => cameras.update(value), workers: updateWorkers, policy: updatePolicy };

listen({
  onState: setLink,
  onReset: (topics) => runs.keep((id) => topics.has(`run/${id}`)),
  onChange: (topic, value) => {
    if (topic.startsWith("run/")) {
      runs.update(topic.slice(4), value);
      videos.refresh();
    } else {
      panels[topic]?.(value);
    }
  },
});
new StartForm(notify).load().catch((error) => notify(error.message));
new StockPanel().load();
