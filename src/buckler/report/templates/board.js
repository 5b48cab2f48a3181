"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const charts = JSON.parse(byId("payload").textContent);
  const rows = [...document.querySelectorAll(".entries tbody tr")];

  const views = charts.map((chart, i) => {
    if (!chart) return null;
    const datasets = { curves: chart.curves, population: [] };
    return window.vegaEmbed(byId(`chart-${i}`), { ...chart.spec, datasets }, {
      actions: false, ast: true, defaultStyle: false, mode: "vega-lite", renderer: "svg", tooltip: false,
    }).then((result) => result.view);
  });

  // A row is shown if every filter takes it; its curve, if its box is ticked too.
  const show = () => {
    const words = byId("search").value.trim().toLowerCase();
    const [data, verdict] = [byId("data").value, byId("verdict").value];
    rows.forEach((row) => {
      const fits = (!words || row.textContent.toLowerCase().includes(words)) &&
        (!data || row.dataset.data === data) && (!verdict || row.dataset.verdict === verdict);
      row.hidden = !fits;
    });
    views.forEach((view, i) => {
      if (!view) return;
      const mine = rows.filter((row) => row.closest("table").dataset.group === String(i) && row.dataset.series !== undefined);
      const on = mine.filter((row) => !row.hidden && row.querySelector("input").checked).map((row) => `s${row.dataset.series}`);
      view.then((made) => made.signal("shown", on).runAsync());
    });
    byId("matches").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} entries`;
  };
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  ["search", "data", "verdict"].forEach((id) => byId(id).addEventListener("input", show));
  rows.forEach((row) => row.querySelectorAll("input").forEach((box) => box.addEventListener("change", show)));
  show();
})();
