"use strict";
// Keeps pages fresh. Everything works without it, by reloading.

const LEAST_MS = 400; // between two refreshes of a run that tells much

function theme() {
  const button = document.getElementById("theme");
  if (!button) return;
  button.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
  });
}

function times(root) {
  for (const each of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(each.getAttribute("datetime"));
    if (!Number.isNaN(moment.valueOf())) each.title = moment.toLocaleString();
  }
}

// Put the parts of a fresh page that differ in place of the old; what one has opened or scrolled stays so.
function renew(live, text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  for (const part of fresh.querySelectorAll("[data-live]")) {
    const old = live.querySelector(`[data-live="${part.dataset.live}"]`);
    if (!old) { live.append(part); continue; }
    if (old.innerHTML === part.innerHTML || old.contains(document.activeElement) && document.activeElement.closest("form")) continue;
    const opened = [...old.querySelectorAll("details[open][id]")].map((each) => each.id);
    const places = [...old.querySelectorAll(".scroll, .log")].map((each) => [each.scrollLeft, each.scrollTop, each.scrollTop + each.clientHeight >= each.scrollHeight - 4]);
    old.innerHTML = part.innerHTML;
    for (const id of opened) { const each = document.getElementById(id); if (each) each.open = true; }
    [...old.querySelectorAll(".scroll, .log")].forEach((each, place) => {
      if (!places[place]) return;
      each.scrollLeft = places[place][0];
      each.scrollTop = each.classList.contains("log") && places[place][2] ? each.scrollHeight : places[place][1];
    });
    times(old);
  }
  const chips = document.getElementById("chips");
  const source = live.querySelector(".chips-source");
  if (chips && source && chips.innerHTML !== source.innerHTML) chips.innerHTML = source.innerHTML;
}

async function refresh(live) {
  const answer = await fetch(live.dataset.liveUrl, { headers: { accept: "text/html" } });
  if (answer.redirected || answer.status === 401) { location.reload(); return; }
  if (answer.ok) renew(live, await answer.text());
}

// A list: look again every few seconds, while somebody looks at it.
function watchList(live) {
  setInterval(() => { if (!document.hidden) refresh(live).catch(() => {}); }, Number(live.dataset.every));
}

// A run: its events say when to look again. Whatever their names are, any of them may change the page.
async function watchRun(live) {
  let last = "", due = 0, timer = 0;
  const soon = () => {
    if (timer) return;
    timer = setTimeout(async () => {
      timer = 0; due = Date.now() + LEAST_MS;
      await refresh(live).catch(() => {});
    }, Math.max(due - Date.now(), 0));
  };
  for (;;) {
    try {
      const headers = { accept: "text/event-stream", ...(last ? { "last-event-id": last } : {}) };
      const answer = await fetch(live.dataset.events, { headers });
      if (!answer.ok) throw new Error(String(answer.status));
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) if (line.startsWith("id:")) { last = line.slice(3).trim(); soon(); }
      }
      await refresh(live).catch(() => {});
      if (live.querySelector(".status .state.running, .status .state.queued") === null) return; // it has ended
    } catch { /* the service restarts, perhaps */ }
    await new Promise((wake) => setTimeout(wake, 2000));
  }
}

function forms() {
  for (const each of document.querySelectorAll("[data-submit]")) each.addEventListener("change", () => each.form.submit());
  const domain = document.getElementById("domain");
  if (domain) {
    const fitting = () => {
      for (const picks of document.querySelectorAll(".picks")) {
        picks.hidden = picks.dataset.domain !== domain.value;
        for (const box of picks.querySelectorAll("input")) box.disabled = picks.hidden;
      }
    };
    domain.addEventListener("change", fitting);
    fitting();
  }
  document.getElementById("errors")?.focus();
}

// A link in a mail comes from elsewhere, so the browser keeps a strict cookie back. Asked from here, it does not.
async function signedIn() {
  const form = document.getElementById("sign-in");
  if (!form) return;
  const answer = await fetch("/session", { headers: { accept: "*/*" } });
  if (answer.status === 204) location.replace(form.dataset.next);
}

theme();
times(document);
forms();
signedIn().catch(() => {});
const live = document.getElementById("live");
if (live && live.dataset.events) watchRun(live);
else if (live && live.dataset.every) watchList(live);
