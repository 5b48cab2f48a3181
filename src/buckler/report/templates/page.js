"use strict";
(() => {
  const payload = JSON.parse(document.getElementById("payload").textContent);
  const byId = (id) => document.getElementById(id);
  const PAGE = 50;
  const KINDS = ["predicted right", "predicted wrong", "label unknown"];

  // Text from a run only ever becomes a text node or an attribute's value; nothing is parsed as HTML.
  const make = (tag, className, text) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const nameOf = (label) => {
    if (label === null) return "";
    const name = payload.classes && payload.classes[label];
    return name ? `${label} ${name}` : String(label);
  };

  // Expressions are interpreted, not compiled, so that the page's policy can forbid eval.
  const embed = (id, spec, datasets) =>
    window.vegaEmbed(byId(id), { ...spec, datasets }, {
      actions: false, ast: true, defaultStyle: false, mode: "vega-lite", renderer: "svg", tooltip: false,
    }).then((result) => result.view);

  const curveRows = payload.series.flatMap((one, i) => payload.radii.map((radius, place) => ({
    series: `s${i}`, radius: Number(radius), place, accuracy: Number(one.accuracy[place]), low: Number(one.low[place]),
  })));
  const accuracyView = embed("accuracy-chart", payload.charts.accuracy, { curves: curveRows });

  const showRadius = (place) => {
    const text = payload.radii[place];
    byId("radius").value = place;
    byId("radius").setAttribute("aria-valuetext", text);
    byId("radius-shown").textContent = text;
    byId("radius-named").textContent = text;
    document.querySelectorAll("#summary tbody tr").forEach((row) => {
      const one = payload.series[Number(row.dataset.series)];
      row.querySelector("[data-value=accuracy]").textContent = one.accuracy[place];
      row.querySelector("[data-value=low]").textContent = one.low[place];
    });
    accuracyView.then((view) => view.signal("cursor", place).runAsync());
  };
  byId("radius").addEventListener("input", (event) => showRadius(Number(event.target.value)));

  accuracyView.then((view) => {
    const follow = (event) => {
      const svg = byId("accuracy-chart").querySelector("svg");
      const at = view.scale("x").invert(event.clientX - svg.getBoundingClientRect().left - view.origin()[0]);
      const distance = (text) => Math.abs(Number(text) - at);
      showRadius(payload.radii.reduce((best, text, i) => (distance(text) < distance(payload.radii[best]) ? i : best), 0));
    };
    byId("accuracy-chart").addEventListener("pointermove", follow);
    byId("accuracy-chart").addEventListener("pointerdown", follow);
  });

  const switches = [...document.querySelectorAll("#summary input[type=checkbox]")];
  const showCurves = () => {
    const on = switches.filter((box) => box.checked).map((box) => `s${box.dataset.series}`);
    switches.forEach((box) => box.closest("tr").classList.toggle("off", !box.checked));
    accuracyView.then((view) => view.signal("shown", on).runAsync());
  };
  switches.forEach((box) => box.addEventListener("change", showCurves));

  const barRows = (one) => one.bars.flatMap((counts, kind) => counts.map((count, i) => ({
    low: one.edges[i], high: one.edges[i + 1], kind: KINDS[kind], rank: kind, count,
  })));
  const histogramView = embed("histogram-chart", payload.charts.histogram, { histogram: barRows(payload.series[0]) });

  const state = { series: 0, key: null, descending: false, page: 0, rows: [] };

  const rowsOf = (index) => {
    const one = payload.series[index];
    const run = payload.runs[one.run];
    return run.ids.map((id, i) => {
      const label = run.labels ? run.labels[i] : null;
      const predicted = one.predicted[i];
      const outcome = predicted === null ? "abstained" : label === null ? "certified" : predicted === label ? "right" : "wrong";
      return {
        id, label, predicted, outcome, radius: one.radius[i] / 10 ** one.digits,
        margin: one.margin[i] === null ? null : one.margin[i] / 1e4,
        n: typeof one.n === "number" ? one.n : one.n[i], tile: run.tiles === null ? null : run.tiles + i,
      };
    });
  };

  // Numbers inside of ids count as numbers, so that image 10 comes after image 9.
  const collator = new Intl.Collator("en", { numeric: true });
  const compare = (a, b, key) => {
    if (key === "id" || key === "outcome") return collator.compare(a[key], b[key]);
    const [x, y] = [a[key] ?? -Infinity, b[key] ?? -Infinity];
    return x === y ? 0 : x < y ? -1 : 1;
  };

  const select = () => {
    const words = byId("search").value.trim().toLowerCase();
    const outcome = byId("outcome").value;
    const least = Number(byId("least").value || 0);
    const wanted = (row) =>
      (!words || [row.id, nameOf(row.label), nameOf(row.predicted)].some((text) => text.toLowerCase().includes(words))) &&
      (!outcome || row.outcome === outcome || (outcome === "certified" && row.outcome !== "abstained")) &&
      row.radius >= least;
    state.rows = rowsOf(state.series).filter(wanted);
    if (state.key) {
      const sign = state.descending ? -1 : 1;
      state.rows.sort((a, b) => sign * compare(a, b, state.key));
    }
    const all = payload.runs[payload.series[state.series].run].ids.length;
    byId("matches").textContent = `${state.rows.length.toLocaleString("en")} of ${all.toLocaleString("en")} inputs`;
    state.page = 0;
    draw();
  };

  const marginText = (margin) => (margin === null ? "-inf" : margin.toFixed(4));

  const thumb = (row) => {
    const cell = make("td");
    if (row.tile === null) return cell;
    const picture = make("span", "thumb");
    const [x, y] = [row.tile % payload.sheet.columns, Math.floor(row.tile / payload.sheet.columns)];
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", `input ${row.id}`);
    picture.style.backgroundImage = `url("${payload.sheet.uri}")`;
    picture.style.backgroundPosition = `-${48 * x}px -${48 * y}px`;
    cell.append(picture);
    return cell;
  };

  const draw = () => {
    const digits = payload.series[state.series].digits;
    const body = document.querySelector("#rows tbody");
    const pages = Math.max(1, Math.ceil(state.rows.length / PAGE));
    body.replaceChildren(...state.rows.slice(state.page * PAGE, (state.page + 1) * PAGE).map((row) => {
      const line = make("tr");
      const id = make("th", "name", row.id);
      id.scope = "row";
      const outcome = make("td");
      outcome.append(make("span", `result ${row.outcome}`, row.outcome));
      if (payload.sheet) line.append(thumb(row));
      line.append(
        id, make("td", "name", nameOf(row.label)), make("td", "name", nameOf(row.predicted)),
        make("td", "number", row.radius.toFixed(digits)), outcome, make("td", "number", marginText(row.margin)),
        make("td", "number", row.n.toLocaleString("en")),
      );
      return line;
    }));
    byId("page").textContent = `Page ${state.page + 1} of ${pages}`;
    byId("before").disabled = state.page === 0;
    byId("after").disabled = state.page >= pages - 1;
  };

  document.querySelectorAll("#rows th[data-key]").forEach((head) => {
    head.querySelector("button").addEventListener("click", () => {
      state.descending = state.key === head.dataset.key ? !state.descending : false;
      state.key = head.dataset.key;
      document.querySelectorAll("#rows th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      select();
    });
  });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  ["search", "outcome", "least"].forEach((id) => byId(id).addEventListener("input", select));
  byId("before").addEventListener("click", () => { state.page -= 1; draw(); });
  byId("after").addEventListener("click", () => { state.page += 1; draw(); });

  const choose = () => {
    state.series = Number(byId("chosen").value);
    const one = payload.series[state.series];
    const certified = one.inputs - one.abstained;
    byId("histogram-words").textContent =
      `${certified.toLocaleString("en")} of ${one.inputs.toLocaleString("en")} inputs are certified; ` +
      `${one.abstained.toLocaleString("en")} abstentions have no radius and are not drawn.`;
    histogramView.then((view) => view.data("histogram", barRows(one)).runAsync());
    select();
  };
  byId("chosen").addEventListener("change", choose);

  // A spreadsheet takes a cell that begins with one of these signs for a formula; an apostrophe makes it text.
  const cell = (value) => {
    const text = String(value);
    const safe = /^[=+\-@\t\r\n]/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  byId("download").addEventListener("click", () => {
    const one = payload.series[state.series];
    const lines = [["run", "method", "id", "label", "predicted", "outcome", "radius", `${one.margin_kind}_margin`, "n"].join(",")];
    state.rows.forEach((row) => lines.push([
      cell(payload.runs[one.run].name), cell(one.name), cell(row.id), cell(nameOf(row.label)), cell(nameOf(row.predicted)),
      row.outcome, row.radius.toFixed(one.digits), marginText(row.margin), row.n,
    ].join(",")));
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv;charset=utf-8" }));
    link.download = "certificates.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  choose();
})();
