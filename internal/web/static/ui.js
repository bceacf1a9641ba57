// Refreshes open pages, handles keyboard shortcuts and shows times in the time zone of the user.
// All pages also work without it.
"use strict";
(() => {
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
  const settings = { get: (k) => { try { return localStorage.getItem(k); } catch { return null; } }, set: (k, v) => { try { localStorage.setItem(k, v); } catch { /* not essential */ } } };

  // Times are in the local time zone or UTC, and ages are updated.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const inUTC = () => settings.get("tasker.zone") === "utc";
  const length = (s) => s < 60 ? `${Math.floor(s)} s` : s < 3600 ? `${Math.floor(s / 60)} min`
    : s < 86400 ? `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min` : `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
  const format = (at) => at.toLocaleString("sv-SE", { timeZone: inUTC() ? "UTC" : zone }) + (inUTC() ? " UTC" : ` ${zone}`);
  const times = () => {
    const now = Date.now();
    for (const t of $$("time[datetime]")) {
      const at = new Date(t.getAttribute("datetime"));
      if (isNaN(at)) continue;
      const s = (now - at) / 1000;
      const text = s < 0 ? `in ${length(-s)}` : `${length(s)} ago`;
      if (t.textContent !== text) t.textContent = text;
      t.title = format(at);
    }
    const button = $("#zone");
    if (button) {
      button.hidden = false;
      const text = inUTC() ? "Times in UTC" : `Times in ${zone}`;
      if (button.textContent !== text) button.textContent = text;
    }
  };

  // Graphs are scrolled to the marked step.
  for (const g of $$(".graph")) {
    const m = $(".marked", g), a = g.getBoundingClientRect(), b = m && m.getBoundingClientRect();
    if (b) g.scrollBy(b.left - a.left - (a.width - b.width) / 2, b.top - a.top - (a.height - b.height) / 2);
  }

  // Selected rows; anchor is the start of a range.
  let anchor = null;
  const selected = () => {
    const place = $("#selected"), n = $$("[data-pick]:checked").length;
    const text = n ? `${n} selected` : "";
    if (place && place.textContent !== text) place.textContent = text;
  };
  const pick = (box, range) => {
    const boxes = $$("[data-pick]"), from = boxes.findIndex((b) => b.id === anchor), to = boxes.indexOf(box);
    if (!range || from < 0) box.checked = !box.checked;
    else for (const b of boxes.slice(Math.min(from, to), Math.max(from, to) + 1)) b.checked = boxes[from].checked;
    anchor = box.id;
    selected();
  };

  // Live updates: visible pages listen to the event stream and poll without one. Only differences
  // are replaced, so that scroll position, focus, open details and input are preserved.
  const main = $("#main");
  const address = main && main.dataset.live;
  const feedAddress = main && main.dataset.feed;
  let paused = false, feed = null, due = null, last = Date.now(), failed = 0; // time of the first failure
  const busy = () => { const e = document.activeElement; return e && main.contains(e) && /^(INPUT|TEXTAREA|SELECT)$/.test(e.tagName) && !e.matches("[data-pick]"); };
  const fresh = () => {
    const lost = $("#lost"), button = $("#pause"), place = $("#fresh");
    if (lost) {
      lost.hidden = !failed;
      const text = failed ? `Not connected since ${format(new Date(failed))}. This page shows the state as of ${format(new Date(last))}. Reconnecting.` : "";
      if (lost.textContent !== text) lost.textContent = text;
    }
    if (button) button.textContent = paused ? "Paused" : failed ? "Not connected" : "Live";
    if (!place) return;
    place.textContent = `As of ${format(new Date(last))}` + (failed ? " · not connected" : paused ? " · paused" : "");
  };
  const ask = (path) => fetch(path, { headers: { Accept: "text/html", "Tasker-Refresh": "1" }, signal: AbortSignal.timeout(20000) });
  const parse = async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html");
  const typed = () => $$("textarea, input:not([type=hidden])", main).some((f) => f.value !== f.defaultValue);
  const ended = (is) => { const place = $("#ended"); if (place) place.hidden = !is; };
  const refresh = async () => {
    due = null;
    if (paused || document.hidden || busy()) return;
    try {
      const answer = await ask(address);
      if (answer.status === 401 && typed()) { ended(true); return; }
      if (answer.status === 401 || answer.status === 403) { location.reload(); return; } // shows the sign-in or error page
      if (!answer.ok) throw new Error(String(answer.status));
      const next = $("#main", await parse(answer));
      if (paused || busy() || !next) return;
      for (const box of $$("[data-pick]:checked", main)) { // keep the selection
        const same = next.querySelector(`#${CSS.escape(box.id)}`);
        if (same) same.setAttribute("checked", "");
      }
      const note = $("#note", main); // keep it unless there is a problem
      if (note && !$("#note", next) && !$(".problem", next)) next.prepend(note.cloneNode(true));
      Idiomorph.morph(main, next.innerHTML, {
        morphStyle: "innerHTML",
        callbacks: { beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS") }, // set by the user
      });
      last = Date.now();
      failed = 0;
    } catch { failed = failed || Date.now(); }
    times();
    fresh();
    selected();
  };
  const soon = () => { if (!due) due = setTimeout(refresh, 400 + Math.random() * 600); };
  const listen = () => {
    if (feed || !feedAddress || paused || document.hidden || !window.EventSource) return;
    feed = new EventSource(feedAddress);
    feed.addEventListener("change", soon);
    feed.onerror = () => { soon(); if (feed && feed.readyState === EventSource.CLOSED) deaf(); };
  };
  const deaf = () => { if (feed) feed.close(); feed = null; };
  if (address) {
    const button = $("#pause");
    button.hidden = false;
    button.addEventListener("click", () => {
      paused = !paused;
      button.setAttribute("aria-pressed", String(paused));
      if (paused) deaf(); else { listen(); soon(); }
      fresh();
    });
    document.addEventListener("visibilitychange", () => { if (document.hidden) deaf(); else { listen(); soon(); } });
    addEventListener("pagehide", deaf);
    listen();
    setInterval(() => { if (!paused && Date.now() - last > 9500) soon(); }, 5000);
  }

  // Keyboard shortcuts: data-key is the key of an element and data-does its description. The keys j
  // and k move between rows.
  const typing = (e) => e.target.closest("input:not([data-pick]), textarea, select, [contenteditable]");
  const rows = () => $$("[data-row]").filter((r) => r.offsetParent !== null);
  const step = (by) => {
    const list = rows();
    if (!list.length) return;
    const here = list.findIndex((r) => r.contains(document.activeElement));
    const next = list[here < 0 ? (by > 0 ? 0 : list.length - 1) : Math.min(Math.max(here + by, 0), list.length - 1)];
    const link = $("a, button, input:not([data-pick])", next);
    if (link) { link.focus(); next.scrollIntoView({ block: "nearest" }); }
  };
  const does = () => {
    const once = new Map(); // rows repeat keys
    for (const e of $$("[data-key]")) if (!once.has(e.dataset.key)) once.set(e.dataset.key, e.dataset.does || e.textContent.trim());
    const list = [...once];
    if (rows().length) list.unshift(["j / k", "next row, previous row"], ["Enter", "open the row"]);
    return [...list, ["Esc", "leave the field"]];
  };
  const help = () => {
    const list = $("#help-keys");
    list.replaceChildren(...does().flatMap(([key, what]) => {
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = key;
      dd.textContent = what;
      return [dt, dd];
    }));
    $("#help").showModal();
  };
  let first = "", firstAt = 0;
  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape" && typing(e)) { e.target.blur(); return; }
    if (e.ctrlKey || e.metaKey || e.altKey || typing(e) || $("dialog[open]")) return;
    if (e.key === "j" || e.key === "k") { step(e.key === "j" ? 1 : -1); e.preventDefault(); return; }
    const key = first && e.timeStamp - firstAt < 1500 ? `${first} ${e.key}` : e.key;
    first = "";
    const row = document.activeElement && document.activeElement.closest("[data-row]");
    const of = (k) => `[data-key="${CSS.escape(k)}"]`;
    const box = e.key === "X" && row && $("[data-pick]", row);
    if (box) { e.preventDefault(); pick(box, true); return; }
    const found = (row && $(of(key), row)) || $$(of(key)).find((e) => !e.closest("[data-row]")); // keys of rows need focus in the row
    if (found) {
      e.preventDefault();
      const folded = found.closest("details:not([open])");
      if (folded) folded.open = true;
      if (found.matches("[data-pick]")) pick(found, false);
      else if (/^(INPUT|SELECT|TEXTAREA)$/.test(found.tagName)) { found.focus(); if (found.select) found.select(); } else found.click();
      return;
    }
    if ($$("[data-key]").some((el) => el.dataset.key.startsWith(e.key + " "))) { first = e.key; firstAt = e.timeStamp; e.preventDefault(); }
  });
  const keys = $("#keys");
  if (keys) { keys.hidden = false; keys.addEventListener("click", help); }
  const zoneButton = $("#zone");
  if (zoneButton) zoneButton.addEventListener("click", () => { settings.set("tasker.zone", inUTC() ? "local" : "utc"); times(); fresh(); });

  // Forms are sent once and only with a session, so that no input is lost. Filters apply on change.
  // JSON fields are validated while typing.
  const who = (page) => { const name = $(".who bdi", page); return name ? name.textContent : ""; };
  const send = async (form, button) => {
    try {
      const answer = await ask(location.href);
      const now = answer.ok ? await parse(answer) : null;
      if (answer.status === 401 || now && who(now) !== who(document)) { ended(true); return; }
      const token = now && $("input[name=token]", now); // changes with a new sign-in
      if (token) for (const field of $$("input[name=token]")) field.value = token.value;
    } catch { /* the browser reports the error */ }
    ended(false);
    form.dataset.known = "1";
    form.requestSubmit(button);
  };
  document.addEventListener("submit", (e) => {
    const form = e.target;
    if (form.method !== "post") return;
    if (form.dataset.sent) { e.preventDefault(); return; }
    if (who(document) && main.contains(form) && !form.dataset.known) { e.preventDefault(); send(form, e.submitter); return; }
    delete form.dataset.known;
    form.dataset.sent = "1";
    setTimeout(() => { delete form.dataset.sent; }, 5000);
  });
  document.addEventListener("change", (e) => { if (e.target.matches("[data-pick]")) { anchor = e.target.id; selected(); } });
  document.addEventListener("change", (e) => { const form = e.target.closest("form[data-filters]"); if (form && e.target.matches("select, input[type=checkbox]")) form.requestSubmit(); });
  document.addEventListener("input", (e) => {
    const field = e.target.closest("textarea[data-json]");
    if (!field) return;
    let wrong = "";
    if (field.value.trim()) { try { JSON.parse(field.value); } catch (err) { wrong = `Invalid JSON: ${err.message}`; } }
    field.setCustomValidity(wrong);
    const place = document.getElementById(field.id + "-problem");
    if (place) { place.textContent = wrong; place.hidden = !wrong; }
  });

  times();
  fresh();
  selected();
  setInterval(times, 1000);
})();
