const $ = (id) => document.getElementById(id);
const degrees = (rad) => `${(rad * 180 / Math.PI).toFixed(1)}°`;
let state = null;
let number = 0;

async function wish(kind, value = null) {
  await fetch("/wish", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ [kind]: value }) });
}

// One message at a time; what comes meanwhile is joined.
function stream(kind, join) {
  let waiting = null, busy = false;
  return async (value) => {
    waiting = waiting === null ? value : join(waiting, value);
    if (busy) return;
    busy = true;
    while (waiting !== null) {
      const next = waiting;
      waiting = null;
      await wish(kind, next).catch(() => {});
    }
    busy = false;
  };
}
const add = (a, b) => a.map((x, i) => x + b[i]);
const turn = stream("orbit", add), shift = stream("shift", add), zoom = stream("zoom", (a, b) => a * b);
const drive = stream("drive", (_, b) => b);

function element(tag, text, properties = {}) {
  const made = document.createElement(tag);
  if (text !== "") made.textContent = text;
  return Object.assign(made, properties);
}

function build() {
  document.title = state.title;
  $("title").textContent = state.title;
  $("language").textContent = state.language;
  $("cameras").replaceChildren(...state.cameras.map((name) => {
    const button = element("button", name, { onclick: () => wish("camera", name) });
    button.setAttribute("role", "radio");
    return button;
  }));
  $("speed").replaceChildren(...state.speeds.map((speed) => element("option", `${speed}×`, { value: speed })));
  $("keys").hidden = Object.keys(state.keys).length === 0;
  $("keys").replaceChildren(...Object.entries(state.keys).map(([key, what]) => {
    const button = element("button", "", { onclick: () => wish("key", key), id: `key-${key}` });
    button.append(element("kbd", key), what);
    return button;
  }));
  $("joints").replaceChildren(...state.joints.map((joint) => {
    const row = element("div", "", { className: "joint" });
    const slider = element("input", "", {
      type: "range", min: joint.range[0], max: joint.range[1], step: 0.005, value: joint.command, disabled: !state.drivable,
      oninput: () => drive([...document.querySelectorAll(".joint input")].map((input) => Number(input.value))),
    });
    slider.setAttribute("aria-label", joint.name);
    row.append(element("span", joint.name), slider, element("output", ""));
    return row;
  }));
}

function show() {
  [...$("cameras").children].forEach((button) => button.setAttribute("aria-checked", button.textContent === state.camera));
  $("pause").textContent = state.paused ? "Go on" : "Pause";
  $("again").textContent = state.over ? "Again (it is over)" : "Again";
  if (document.activeElement !== $("speed")) $("speed").value = state.speed;
  $("next").disabled = $("seed").disabled = state.seed === null;
  if (document.activeElement !== $("seed")) $("seed").value = state.seed ?? "";
  $("note").hidden = !state.note;
  $("note").textContent = state.note;
  $("readouts").replaceChildren(...state.readouts.flatMap(([label, value, tone]) => {
    const said = element("dd", value);
    said.dataset.tone = tone;
    return [element("dt", label), said];
  }));
  [...$("joints").children].forEach((row, i) => {
    row.querySelector("output").textContent = degrees(state.joints[i].q);
    const slider = row.querySelector("input");
    if (document.activeElement !== slider) slider.value = state.joints[i].command;
  });
}

async function follow() {
  for (;;) {
    try {
      const reply = await (await fetch(`/state?${number}`)).json();
      const first = state === null;
      if (reply.title !== undefined) {
        state = reply;
        number = reply.number;
        if (first) build();
        show();
      }
      $("lost").hidden = reply.open;
      if (!reply.open) return;
      await new Promise((done) => setTimeout(done, 40));
    } catch {
      $("lost").hidden = false;
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
}

$("pause").onclick = () => wish("pause");
$("step").onclick = () => wish("step");
$("again").onclick = () => wish("restart", null);
$("next").onclick = () => wish("restart", state.seed + 1);
$("seed").onchange = (event) => { wish("restart", Math.max(0, Math.round(Number(event.target.value)))); event.target.blur(); };
$("speed").onchange = (event) => { wish("speed", Number(event.target.value)); event.target.blur(); };

const picture = $("picture");
picture.onpointerdown = (event) => { event.preventDefault(); picture.setPointerCapture(event.pointerId); };
picture.onpointermove = (event) => {
  if (!event.buttons) return;
  if (event.shiftKey || event.buttons & 4) shift([-event.movementX * 0.0015, event.movementY * 0.0015]);
  else turn([-event.movementX * 0.4, -event.movementY * 0.4]);
  if (state && state.camera !== "orbit") wish("camera", "orbit");
};
picture.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(event.deltaY * 0.001)); }, { passive: false });

document.addEventListener("keydown", (event) => {
  if (!state || event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT/.test(event.target.tagName) && event.target.type !== "range") return;
  const key = event.key.toLowerCase();
  if (key in state.keys) wish("key", key);
  else if (key === " ") wish("pause");
  else if (key === ".") wish("step");
  else return;
  event.preventDefault();
});

follow();
