// Draws the figures and the list of trials from the page's data.  Texts of the run only ever become text.
"use strict";
(async () => {
  const data = JSON.parse(document.getElementById("data").textContent);

  const significant = (value) => Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 12 });
  const duration = (ns) => {
    if (ns === null || ns === undefined) return "–";
    const size = Math.abs(ns);
    if (size >= 1e9) return significant(ns / 1e9) + " s";
    if (size >= 1e6) return significant(ns / 1e6) + " ms";
    if (size >= 1e3) return significant(ns / 1e3) + " µs";
    return significant(ns) + " ns";
  };
  const oneIn = (share) => (share >= 0.1 ? significant(share * 100) + " %" : "1 in " + significant(1 / share));

  const curveRows = (curves) =>
    curves.flatMap((curve) => {
      const label = data.labels[curve.arm];
      const rows = [];
      curve.x.forEach((x, i) => {
        // Zero and less have no place on a logarithmic axis.
        if (x > 0) rows.push({ kind: "curve", arm: curve.arm, label, x, y: curve.y[i], t: duration(x), s: oneIn(curve.y[i]) });
      });
      if (curve.mean > 0) rows.push({ kind: "mean", arm: curve.arm, label, x: curve.mean, t: duration(curve.mean) });
      return rows;
    });
  const rawRows = (series) =>
    series.flatMap(({ arm, strip, y, median }) => {
      const label = data.labels[arm];
      const rows = [];
      // Values have no order, so even steps within the strip spread them without hiding one behind another.
      y.forEach((value, i) => {
        if (value > 0) rows.push({ kind: "raw", arm, label, x: strip + 0.08 + (0.84 * (i + 0.5)) / y.length, y: value, t: duration(value) });
      });
      if (median > 0) rows.push({ kind: "median", arm, label, x: strip + 0.05, x2: strip + 0.95, y: median, t: duration(median) });
      return rows;
    });

  const rowsOf = ({ kind, rows }) => ({ curves: curveRows, raw: rawRows })[kind]?.(rows) ?? rows;

  const draw = async (place) => {
    const name = place.dataset.rows;
    const rows = rowsOf(data.panels[name]);
    const spec = { ...data.specs[Number(place.dataset.spec)], datasets: { rows } };
    await vegaEmbed(place, spec, { renderer: "svg", actions: false, ast: true, mode: "vega-lite" });
  };

  // -- the list of trials: made when it is opened, a page at a time ------------------------------------
  const listTrials = ({ texts, columns }) => {
    const body = document.getElementById("trial-rows");
    const more = document.getElementById("trial-more");
    const filter = document.getElementById("trial-filter");
    const count = document.getElementById("trial-count");
    const PAGE = 200;
    let matching = [];
    let shown = 0;

    const fields = (i) => [
      columns.id[i],
      data.labels[texts[columns.arm[i]]] || texts[columns.arm[i]],
      texts[columns.what[i]],
      columns.block[i],
      columns.attempt[i],
      texts[columns.status[i]],
      columns.samples[i] === null ? "–" : columns.samples[i].toLocaleString("en"),
      duration(columns.median[i]),
      columns.foreign[i] === null ? "–" : (columns.foreign[i] * 100).toFixed(1) + " %",
      texts[columns.note[i]],
    ];
    const numeric = new Set([0, 3, 4, 6, 7, 8]);
    const showMore = () => {
      for (const i of matching.slice(shown, shown + PAGE)) {
        const row = body.insertRow();
        row.className = "status-" + texts[columns.status[i]];
        fields(i).forEach((text, column) => {
          const cell = row.insertCell();
          cell.textContent = text;
          if (numeric.has(column)) cell.className = "num";
        });
      }
      shown = Math.min(shown + PAGE, matching.length);
      more.hidden = shown >= matching.length;
      count.textContent = shown + " of " + matching.length + " shown";
    };
    const restart = () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      matching = columns.id.map((_, i) => i);
      if (words.length) {
        matching = matching.filter((i) => {
          const text = fields(i).join(" ").toLowerCase();
          return words.every((word) => text.includes(word));
        });
      }
      body.replaceChildren();
      shown = 0;
      showMore();
    };
    document.getElementById("all-trials").addEventListener("toggle", (event) => {
      if (event.target.open && shown === 0) restart();
    });
    filter.addEventListener("input", restart);
    more.addEventListener("click", showMore);
  };
  if (data.trials) listTrials(data.trials);

  // -- what is folded opens when a link leads there, and on paper ----------------------------------------
  const openTarget = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const fold = target && (target.matches("details") ? target : target.querySelector(":scope > details"));
    if (fold) fold.open = true;
  };
  addEventListener("hashchange", openTarget);
  const closeMenus = (but) => {
    for (const menu of document.querySelectorAll("nav details[open]")) if (menu !== but) menu.open = false;
  };
  addEventListener("click", ({ target }) => closeMenus(target.closest("a") ? null : target.closest("nav details")));
  addEventListener("keydown", ({ key }) => key === "Escape" && closeMenus(null));
  openTarget();

  for (const place of document.querySelectorAll("[data-spec]")) await draw(place);
  document.documentElement.dataset.figures = "drawn";
})();
