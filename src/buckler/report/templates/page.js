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

  // The inputs come compressed: base64 of deflated JSON.
  const unpack = (text) => new Response(
    new Blob([Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))]).stream().pipeThrough(new DecompressionStream("deflate")),
  ).json();

  // Expressions are interpreted, not compiled, so that the page's policy can forbid eval.
  const embed = (id, spec, datasets) =>
    window.vegaEmbed(byId(id), { ...spec, datasets }, {
      actions: false, ast: true, defaultStyle: false, mode: "vega-lite", renderer: "svg", tooltip: false,
    }).then((result) => result.view);

  const curveRows = payload.series.flatMap((one, i) => payload.radii.map((radius, place) => ({
    series: `s${i}`, radius: Number(radius), place, accuracy: Number(one.accuracy[place]), low: Number(one.low[place]),
  })));
  const accuracyView = embed("accuracy-chart", payload.charts.accuracy, { curves: curveRows, population: payload.population });

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

  // A curve is shown if its method is, and its run where there are several.
  const ticked = (box) => !box || box.checked;
  const showCurves = () => {
    const on = payload.series.flatMap((one, i) => {
      const row = document.querySelector(`#summary tr[data-series="${i}"]`);
      const run = ticked(row.querySelector("input"));
      row.hidden = !ticked(document.querySelector(`#kinds input[data-kind="${one.kind}"]`));
      row.classList.toggle("off", !run);
      return run && !row.hidden ? [`s${i}`] : [];
    });
    accuracyView.then((view) => view.signal("shown", on).runAsync());
  };
  document.querySelectorAll("#kinds input, #summary input").forEach((box) => box.addEventListener("change", showCurves));
  showCurves();

  const barRows = (one) => one.bars.flatMap((counts, kind) => counts.map((count, i) => ({
    low: one.edges[i], high: one.edges[i + 1], kind: KINDS[kind], rank: kind, count,
  })));
  const histogramView = embed("histogram-chart", payload.charts.histogram, { histogram: barRows(payload.series[0]) });

  const state = { series: 0, key: null, descending: false, page: 0, all: [], rows: [], open: null };
  let inputs = null;

  const rowsOf = (index) => {
    const one = payload.series[index];
    const run = inputs.runs[one.run];
    const { tiles } = payload.runs[one.run];
    const column = (name) => inputs.series[name][index];
    return run.ids.map((id, i) => {
      const label = run.labels ? run.labels[i] : null;
      const predicted = column("predicted")[i];
      const [radius, margin] = [column("radius")[i], column("margin")[i]];
      const outcome = predicted === null ? "abstained" : label === null ? "certified" : predicted === label ? "right" : "wrong";
      return {
        place: i, id, label, predicted, outcome, radius: Number(radius), radiusText: radius,
        margin: margin === "-inf" ? null : Number(margin), marginText: margin, n: column("n")[i],
        tile: tiles === null ? null : tiles + i,
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
    state.rows = state.all.filter(wanted);
    if (state.key) {
      const sign = state.descending ? -1 : 1;
      state.rows.sort((a, b) => sign * compare(a, b, state.key));
    }
    byId("matches").textContent = `${count(state.rows.length)} of ${count(state.all.length)} inputs`;
    state.page = 0;
    state.open = null;
    draw();
  };

  const count = (number) => number.toLocaleString("en");

  const thumb = (tile, label) => {
    const picture = make("span", "thumb");
    const [x, y] = [tile % payload.sheet.columns, Math.floor(tile / payload.sheet.columns)];
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", label);
    picture.style.backgroundImage = `url("${payload.sheet.uri}")`;
    picture.style.backgroundPosition = `-${48 * x}px -${48 * y}px`;
    return picture;
  };

  // The parts of a row's details; each returns its nodes, none where nothing is known.
  const sentence = (row) => {
    const text = inputs.series.sentence[state.series][row.place];
    return [make("p", "sentence", text.charAt(0).toUpperCase() + text.slice(1) + ".")];
  };
  const pictures = (row, refuted) => {
    const run = payload.runs[payload.series[state.series].run];
    const shown = row.tile === null ? [] : [[row.tile, "the input"]];
    if (refuted && refuted.tile !== null && run.points !== null) shown.push([run.points + refuted.tile, "the point that refutes"]);
    if (!shown.length) return [];
    const line = make("div", "pictures");
    line.append(...shown.map(([tile, words]) => {
      const figure = make("figure");
      figure.append(thumb(tile, `${words}, ${row.id}`), make("figcaption", "", words));
      return figure;
    }));
    return [line];
  };
  const bars = (row) => {
    const { votes } = inputs.runs[payload.series[state.series].run];
    if (!votes) return [make("p", "", "Votes are not in this file: a page made from the run's own folder has them.")];
    const n = votes.n[row.place];
    const top = votes.classes.map((column, k) => [column[row.place], votes.counts[k][row.place]]).filter(([, number]) => number > 0);
    const rival = top.find(([label]) => label !== (row.predicted === null ? top[0][0] : row.predicted));
    const rest = n - top.reduce((sum, [, number]) => sum + number, 0);
    const list = make("ul", "bars");
    const line = (name, words, number) => {
      const item = make("li");
      const title = make("span", "name", name);
      if (words.length) title.append(" ", make("small", "", words.join(", ")));
      const track = make("span", "bar");
      const fill = make("span");
      fill.style.width = `${(100 * number) / n}%`;
      track.append(fill);
      item.append(title, track, make("span", "number", `${count(number)} (${((100 * number) / n).toFixed(1)} %)`));
      return item;
    };
    top.forEach(([label, number]) => {
      const words = [];
      if (label === row.predicted) words.push("certified");
      if (rival && label === rival[0]) words.push("runner-up");
      if (label === row.label) words.push("label");
      list.append(line(nameOf(label), words, number));
    });
    if (rest) list.append(line("all others", [], rest));
    return [make("h4", "", `Votes of ${count(n)} noisy copies`), list];
  };
  const methods = (row) => {
    const run = payload.series[state.series].run;
    const others = payload.series.map((one, i) => [one, i]).filter(([one, i]) => one.run === run && i !== state.series);
    if (!others.length) return [];
    const words = others.map(([one, i]) => `${one.name} ${inputs.series.radius[i][row.place]}`);
    return [make("h4", "", "Radius by the other methods"), make("p", "others", words.join(", "))];
  };
  const neighbours = (row) => {
    if (row.predicted === null) return [];
    const certified = state.all.filter((other) => other.predicted !== null);
    const order = certified.sort((a, b) => a.radius - b.radius || a.place - b.place);
    const rank = order.indexOf(row);
    const line = make("p", "near", `Its radius is number ${count(order.length - rank)} of the ${count(order.length)} in this table, the largest being the first. `);
    [["Next below", order[rank - 1]], ["Next above", order[rank + 1]]].forEach(([words, other]) => {
      if (!other) return;
      const button = make("button", "", `${words}: ${other.id}, ${other.radiusText}`);
      button.type = "button";
      button.addEventListener("click", () => reveal(other));
      line.append(button, " ");
    });
    return [make("h4", "", "Neighbours in radius"), line];
  };
  const refutation = (refuted) => (!refuted ? [] : [
    make("h4", "", `Refuted at distance ${refuted.radius}, by class ${nameOf(refuted.rival)}`),
    make("p", "refuted", `${refuted.sentence.charAt(0).toUpperCase()}${refuted.sentence.slice(1)}.`),
  ]);
  const details = (row) => {
    const known = inputs.runs[payload.series[state.series].run].refuted;
    const refuted = Object.hasOwn(known, row.id) ? known[row.id] : null;
    const [left, right] = [make("div"), make("div")];
    left.append(...sentence(row), ...pictures(row, refuted), ...refutation(refuted));
    right.append(...bars(row), ...methods(row), ...neighbours(row));
    const panel = make("div", "panel");
    panel.append(left, right);
    const line = make("tr", "details");
    const cell = make("td");
    cell.colSpan = document.querySelectorAll("#rows thead th").length;
    cell.append(panel);
    line.append(cell);
    return line;
  };
  const toggle = (row) => {
    state.open = state.open === row ? null : row;
    draw();
    const button = document.querySelector(`#rows tr[data-row="${row.place}"] button`);
    if (button) button.focus();
  };
  // A neighbour may be filtered out or on another page.
  const reveal = (row) => {
    if (!state.rows.includes(row)) {
      byId("filters").reset();
      select();
    }
    state.page = Math.floor(state.rows.indexOf(row) / PAGE);
    state.open = null;
    toggle(row);
  };

  const draw = () => {
    const body = document.querySelector("#rows tbody");
    const pages = Math.max(1, Math.ceil(state.rows.length / PAGE));
    body.replaceChildren(...state.rows.slice(state.page * PAGE, (state.page + 1) * PAGE).flatMap((row) => {
      const open = state.open === row;
      const line = make("tr", open ? "open" : "");
      line.dataset.row = row.place;
      line.addEventListener("click", () => toggle(row));
      const id = make("th", "name");
      id.scope = "row";
      const button = make("button", "", row.id);
      button.type = "button";
      button.setAttribute("aria-expanded", String(open));
      id.append(button);
      const outcome = make("td");
      outcome.append(make("span", `result ${row.outcome}`, row.outcome));
      if (payload.sheet) {
        const picture = make("td");
        if (row.tile !== null) picture.append(thumb(row.tile, `input ${row.id}`));
        line.append(picture);
      }
      line.append(
        id, make("td", "name", nameOf(row.label)), make("td", "name", nameOf(row.predicted)),
        make("td", "number", row.radiusText), outcome, make("td", "number", row.marginText),
        make("td", "number", count(row.n)),
      );
      return open ? [line, details(row)] : [line];
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
  // Within the table the arrows go from input to input, and Escape closes the details.
  byId("rows").addEventListener("keydown", (event) => {
    const buttons = [...document.querySelectorAll("#rows tbody .name button")];
    const place = buttons.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && place >= 0 && buttons[place + step]) {
      event.preventDefault();
      buttons[place + step].focus();
    }
    if (event.key === "Escape" && state.open) toggle(state.open);
  });

  const choose = () => {
    state.series = Number(byId("chosen").value);
    const one = payload.series[state.series];
    const certified = one.inputs - one.abstained;
    const sums = one.bars.map((counts, kind) => [counts.reduce((sum, number) => sum + number, 0), KINDS[kind]]);
    const parts = sums.filter(([number]) => number).map(([number, words]) => `${count(number)} ${words}`).join(", ");
    byId("histogram-words").textContent =
      `${count(certified)} of ${count(one.inputs)} inputs are certified${parts ? ` (${parts})` : ""}; ` +
      `abstentions (${count(one.abstained)}) have no radius and are not drawn.`;
    histogramView.then((view) => view.data("histogram", barRows(one)).runAsync());
    state.all = rowsOf(state.series);
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
      row.outcome, row.radiusText, row.marginText, row.n,
    ].join(",")));
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv;charset=utf-8" }));
    link.download = "certificates.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  unpack(byId("packed").textContent).then((found) => {
    inputs = found;
    choose();
  }).catch((problem) => { byId("matches").textContent = `The inputs cannot be shown by this browser: ${problem.message}`; });
})();
