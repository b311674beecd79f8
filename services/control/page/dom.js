// Elements and texts. All that comes from outside goes through textContent or properties: nothing is parsed as HTML.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name.startsWith("data-") || name.startsWith("aria-") || name === "role" || name === "for") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

// Changes only what differs, so that a reader's selection and a screen reader are left alone.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

export function table(head, rows) {
  const cell = (tag, value) => make(tag, typeof value === "number" ? { class: "num" } : {}, String(value));
  const numeric = (column) => rows.length > 0 && rows.every((row) => typeof row[column] === "number");
  return make("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": head.join(", ") },
    make("table", {},
      make("thead", {}, make("tr", {}, ...head.map((text, i) => make("th", { scope: "col", class: numeric(i) ? "num" : "" }, text)))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((value) => cell("td", value)))))));
}

export function duration(seconds) {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

export function rate(perSecond, unit) {
  return perSecond >= 1 ? `${perSecond.toFixed(1)} ${unit}/s` : `${(perSecond * 60).toFixed(1)} ${unit}/min`;
}

export function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let step = 0;
  for (; bytes >= 1000 && step < units.length - 1; step += 1) bytes /= 1000;
  return `${bytes.toFixed(step && bytes < 100 ? 1 : 0)} ${units[step]}`;
}

export const percent = (share) => `${Math.round(share * 100)} %`;
