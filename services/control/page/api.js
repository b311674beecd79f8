// Requests to the API. Errors carry the text that the API gave.

export class ApiError extends Error {
  constructor(status, code, text) {
    super(text);
    this.status = status;
    this.code = code;
  }
}

let onUnauthorized = () => {};
export const whenUnauthorized = (action) => { onUnauthorized = action; };

async function request(method, path, body) {
  const options = { method, headers: { "X-Twin": "1" }, cache: "no-store" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let reply;
  try {
    reply = await fetch(path, options);
  } catch {
    throw new ApiError(0, "offline", "The control plane does not answer.");
  }
  const content = await reply.json().catch(() => null);
  if (reply.ok) return content;
  if (reply.status === 401 && path !== "/api/login") onUnauthorized();
  const error = content?.error ?? { code: "failed", text: `status ${reply.status}` };
  throw new ApiError(reply.status, error.code, error.text);
}

// The picture, null when there is none now.
export async function getPicture(path) {
  const reply = await fetch(path, { cache: "no-store" }).catch(() => null);
  return reply?.ok ? reply.blob() : null;
}

export const get = (path) => request("GET", path);
export const post = (path, body) => request("POST", path, body);
export const remove = (path) => request("DELETE", path);
export const runPath = (id, action = "") => `/api/runs/${encodeURIComponent(id)}${action}`;
