// The event stream: topics with values. EventSource comes back by itself and tells what it saw last.

import { get } from "./api.js";

export function listen({ onChange, onReset, onState }) {
  const source = new EventSource("/api/events");
  source.addEventListener("open", () => onState("live", "good"));
  source.addEventListener("reset", (event) => onReset(new Set(JSON.parse(event.data).topics)));
  source.addEventListener("change", (event) => {
    const { topic, value } = JSON.parse(event.data);
    onChange(topic, value);
  });
  source.addEventListener("error", async () => {
    onState("offline", "bad");
    if (source.readyState !== EventSource.CLOSED) return; // it tries again
    source.close();
    try {
      await get("/api/arm"); // asks for the token when that is what is missing
    } catch (error) {
      if (error.status === 401) return; // goes on after the login
    }
    setTimeout(() => listen({ onChange, onReset, onState }), 5000);
  });
}
