// Refreshes what the server has rendered, when the store changes. All works without it.
// It inserts only the server's own HTML, and that through one Trusted Types policy.
"use strict";
(() => {
  const root = document.documentElement;
  const project = root.dataset.project;
  const policy = window.trustedTypes
    ? window.trustedTypes.createPolicy("crdtmem", { createHTML: (html) => html })
    : { createHTML: (html) => html };
  const SETTLE_MS = 150; // several events of one commit are one refresh
  const SAY_MS = 2000; // a screen reader is not talked to more often
  const SAID_MS = 10000;
  const AGE_MS = 20000;
  const POLL_MS = 3000;

  // One polite line for everything that happens by itself.
  const line = document.getElementById("live");
  let saidAt = -SAY_MS;
  let sayTimer = 0;
  function say(text, forMs = SAID_MS) {
    if (!line) return;
    clearTimeout(sayTimer);
    const wait = Math.max(0, saidAt + SAY_MS - performance.now());
    sayTimer = setTimeout(() => {
      saidAt = performance.now();
      line.textContent = text;
      if (forMs) sayTimer = setTimeout(() => (line.textContent = ""), forMs);
    }, wait);
  }

  // Parts: each is fetched alone when an event has made it stale.
  const stale = new Map(); // part's name -> timer
  const asked = new Map(); // part's name -> number of the newest request

  function partOf(name) {
    return document.querySelector(`[data-part="${CSS.escape(name)}"]`);
  }

  function isHeld(part) {
    const focus = document.activeElement;
    if (focus && focus !== document.body && part.contains(focus)) return true;
    const selection = window.getSelection();
    if (!selection || selection.isCollapsed) return false;
    return selection.containsNode(part, true);
  }

  function freshOf(html) {
    const template = document.createElement("template");
    template.innerHTML = policy.createHTML(html);
    return template.content.firstElementChild;
  }

  function swap(part, fresh) {
    part.replaceWith(fresh);
    forgetNote(fresh.dataset.part);
    countAll();
  }

  function forgetNote(name) {
    const note = document.querySelector(`[data-note="${CSS.escape(name)}"]`);
    if (note) note.remove();
  }

  // What holds the focus or the selection stays; a note offers what is new.
  function offer(part, fresh) {
    const name = part.dataset.part;
    forgetNote(name);
    const note = document.createElement("p");
    note.className = "note offered";
    note.dataset.note = name;
    note.append("There is something newer. ");
    const show = document.createElement("button");
    show.type = "button";
    show.textContent = "Show it";
    show.addEventListener("click", () => {
      const present = partOf(name);
      if (!present) return;
      swap(present, fresh);
      // The focus goes to what was asked for, not to the top of the page.
      fresh.tabIndex = -1;
      fresh.focus();
    });
    note.append(show);
    part.before(note);
  }

  async function refresh(name) {
    stale.delete(name);
    const number = (asked.get(name) || 0) + 1;
    asked.set(name, number);
    let url = new URL(location.href);
    for (const done of ["done", "base"]) url.searchParams.delete(done);
    const form = document.querySelector("input[name=base_rev]");
    url.search = form && name === "moved" ? `?base_rev=${form.value}` : url.search;
    url.searchParams.set("part", name);
    url.hash = "";
    // A form that was refused stands at an address that may take no GET.
    url.pathname = url.pathname.replace(/\/preview$/, "/edit").replace(/\/undo$/, "/history");
    // This one is the same on all pages.
    if (name === "sync") url = new URL(`${home}/slots?part=sync`, location.origin);
    let answer;
    try {
      answer = await fetch(url, { headers: { Accept: "text/html" } });
    } catch {
      say("The server cannot be reached.");
      return;
    }
    if (answer.status === 401) {
      say("You are signed out. Run crdtmem serve --url.", 0);
      return;
    }
    if (answer.status === 404) say("What this page shows is gone. Load it again.", 0);
    if (!answer.ok || asked.get(name) !== number) return;
    const fresh = freshOf(await answer.text());
    const part = partOf(name);
    if (!part || !fresh || part.outerHTML === fresh.outerHTML) return;
    if (isHeld(part)) offer(part, fresh);
    else swap(part, fresh);
  }

  function markStale(event, data) {
    for (const part of document.querySelectorAll("[data-on]")) {
      if (!part.dataset.on.split(" ").includes(event)) continue;
      const slot = part.dataset.slot;
      if (slot && data && data.label && slot !== `${data.scope}/${data.label}`) continue;
      const name = part.dataset.part;
      // The first event starts the clock: a busy slot is shown, not waited for.
      if (!stale.has(name)) {
        stale.set(name, setTimeout(() => refresh(name), SETTLE_MS));
      }
    }
  }

  function tell(change) {
    if (!change.label || !document.querySelector('[data-on~="change"]')) return;
    const who = (change.lanes || []).join(", ");
    const slots = document.querySelectorAll("[data-slot]");
    const here = `${change.scope}/${change.label}`;
    const isElsewhere = slots.length && ![...slots].some((s) => s.dataset.slot === here);
    if (!isElsewhere) say(`${who}: ${change.operation}, ${change.label} is at rev ${change.rev}.`);
  }

  // Live: a stream while the page is seen; where there are too many, questions.
  const api = project && `/api/v1/projects/${encodeURIComponent(project)}`;
  const home = project && `/p/${encodeURIComponent(project)}`;
  let source = null;
  let cursor = null;
  let pollTimer = 0;

  function onChange(change) {
    markStale("change", change);
    tell(change);
  }

  function listen() {
    if (!project || source || pollTimer || document.hidden) return;
    const since = cursor ? `?since=${encodeURIComponent(cursor)}` : "";
    source = new EventSource(`${api}/events${since}`);
    const on = (name, does) =>
      source.addEventListener(name, (event) => {
        if (event.lastEventId) cursor = event.lastEventId;
        does(JSON.parse(event.data));
      });
    on("cursor", () => root.setAttribute("data-live", "on"));
    on("change", onChange);
    for (const name of ["editors", "presence", "sync", "condense"]) {
      on(name, (data) => markStale(name, data));
    }
    on("reset", () => {
      for (const name of ["change", "editors", "sync", "condense"]) markStale(name, null);
    });
    on("poll", () => {
      close();
      pollTimer = setInterval(poll, POLL_MS);
    });
    on("bye", () => say("The server is stopping."));
    source.addEventListener("error", () => {
      root.setAttribute("data-live", "off");
      // The browser itself tries again, unless the server refuses.
      if (source && source.readyState === EventSource.CLOSED) {
        say("This page is no longer live. Load it again.", 0);
      }
    });
  }

  function close() {
    if (source) source.close();
    source = null;
    clearInterval(pollTimer);
    pollTimer = 0;
    root.setAttribute("data-live", "off");
  }

  async function poll() {
    const since = cursor ? `?since=${encodeURIComponent(cursor)}` : "";
    let feed;
    try {
      feed = await (await fetch(`${api}/changes${since}`)).json();
    } catch {
      say("The server cannot be reached.");
      return;
    }
    const isFirst = cursor === null;
    if (feed.cursor) cursor = feed.cursor;
    if (!isFirst) for (const change of feed.changes || []) onChange(change);
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else listen();
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", listen);

  // Times in words go on while a page stands; the exact ones are in the attributes.
  function ageOf(iso) {
    const s = Math.max(0, Math.floor((Date.now() - Date.parse(iso)) / 1000));
    if (s < 60) return `${s} s ago`;
    if (s < 3600) return `${Math.floor(s / 60)} min ago`;
    if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
    return `${iso.slice(0, 16).replace("T", " ")} UTC`;
  }

  setInterval(() => {
    const selection = window.getSelection();
    for (const time of document.hidden ? [] : document.querySelectorAll("time")) {
      const isHeld = selection && !selection.isCollapsed && selection.containsNode(time, true);
      if (time.textContent.endsWith(" ago") && !isHeld) {
        time.textContent = ageOf(time.dateTime);
      }
    }
  }, AGE_MS);

  // Fields: how long the text is, and a question before it is thrown away.
  function countAll() {
    for (const area of document.querySelectorAll("textarea[data-limit]")) count(area);
  }

  function count(area) {
    const output = document.querySelector(`output[for="${CSS.escape(area.id)}"]`);
    if (!output) return;
    const size = area.value.length; // UTF-16 units, as the server counts
    const limit = Number(area.dataset.limit);
    output.value = `${size.toLocaleString("en")} of ${limit.toLocaleString("en")} units`;
    output.classList.toggle("bad", size > limit);
  }

  document.addEventListener("input", (event) => {
    if (event.target.matches("textarea[data-limit]")) count(event.target);
  });

  let isSending = false;
  document.addEventListener("submit", () => (isSending = true));
  window.addEventListener("beforeunload", (event) => {
    if (isSending) return;
    for (const area of document.querySelectorAll("[data-guard]")) {
      if (area.value !== area.defaultValue) event.preventDefault();
    }
  });

  // Keys; Your settings turns them off.
  const rows = () => [...document.querySelectorAll("[data-row]")];

  function step(by) {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.contains(document.activeElement));
    const next = all[Math.min(all.length - 1, Math.max(0, at + by))];
    const link = next.querySelector("a, button") || next;
    if (link === next) next.tabIndex = -1;
    link.focus();
  }

  const keys = {
    "/": () => document.getElementById("find").focus(),
    j: () => step(1),
    k: () => step(-1),
    e: () => {
      const edit = document.querySelector("[data-action=edit]");
      if (edit) edit.click();
    },
    "?": () => location.assign("/settings"),
  };

  document.addEventListener("keydown", (event) => {
    if (root.dataset.keys === "off" || !project) return;
    if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    const does = Object.hasOwn(keys, event.key) && keys[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  });

  countAll();
})();
