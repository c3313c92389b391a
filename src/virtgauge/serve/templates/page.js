// Asks for this page again while somebody looks at it, and replaces the parts that have changed.
// The server escapes what a run says; a part becomes elements, and no script within it could run by the page's policy.
"use strict";
(() => {
  const main = document.getElementById("content");
  const connection = document.getElementById("connection");
  let etag = null;
  let timer = null;

  const say = (text, lost) => {
    if (connection.textContent !== text) connection.textContent = text;
    connection.classList.toggle("lost", lost);
  };

  const replace = (fresh) => {
    const focused = document.activeElement?.id;
    for (const part of document.querySelectorAll("[data-part]")) {
      const next = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
      if (!next) continue;
      // What the reader opened, closed or scrolled stays as it is.
      for (const details of part.querySelectorAll("details[id]")) {
        const same = next.querySelector(`#${details.id}`);
        if (same) same.open = details.open;
      }
      if (next.innerHTML === part.innerHTML) continue;
      const scrolled = [...part.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
      part.replaceChildren(...document.adoptNode(next).childNodes);
      part.querySelectorAll(".scroll").forEach((box, i) => (box.scrollLeft = scrolled[i] ?? 0));
    }
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    main.dataset.everyMs = fresh.getElementById("content").dataset.everyMs;
    document.title = fresh.title;
  };

  const refresh = async () => {
    try {
      const headers = etag ? { "If-None-Match": etag } : {};
      const answer = await fetch(location.pathname, { headers, cache: "no-store" });
      if (answer.status === 404) {
        say("This run's folder is no longer there.", true);
        return;
      }
      if (answer.status === 401) {
        say("The server was started anew: open the address with the token again.", true);
        return;
      }
      if (answer.status === 200) {
        const text = await answer.text();
        replace(new DOMParser().parseFromString(text, "text/html"));
        etag = answer.headers.get("Etag");
      }
      say(answer.ok || answer.status === 304 ? "" : `The server answers ${answer.status}; trying again.`, !answer.ok && answer.status !== 304);
    } catch {
      say("The server does not answer; trying again.", true);
    }
    wait();
  };

  const wait = () => {
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(refresh, Number(main.dataset.everyMs) || 2000);
  };

  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (!document.hidden) refresh();
  });
  wait();
})();
