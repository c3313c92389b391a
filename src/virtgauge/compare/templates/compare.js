// Draws the figures from the page's data.  Texts of the runs only ever become text.
"use strict";
(async () => {
  const data = JSON.parse(document.getElementById("data").textContent);
  for (const place of document.querySelectorAll("[data-spec]")) {
    const spec = { ...data.specs[Number(place.dataset.spec)], datasets: { rows: data.panels[place.dataset.rows] } };
    await vegaEmbed(place, spec, { renderer: "svg", actions: false, ast: true, mode: "vega-lite" });
  }
  document.documentElement.dataset.figures = "drawn";
})();
