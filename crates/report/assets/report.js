// Draws the charts of a Plimsoll report, and those of histories. What to draw stands in #data; nothing is fetched.
'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const SYMBOLS = ['circle', 'rect', 'triangle', 'diamond', 'pin', 'arrow', 'roundRect', 'circle'];
  const HATCHED = 'path://M0 0H10V10H0Z M0 5L5 0 M0 10L10 0 M5 10L10 5';
  const SHOWN = 10; // charts of telemetry under a graph; the rest is one click away
  const ROW = 22; // a row of a legend, in pixels
  const charts = [];
  const pen = document.createElement('canvas').getContext('2d');

  const escape = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

  const figure = (value) => {
    if (value === null || value === undefined || !isFinite(value)) return '–';
    const size = Math.abs(value);
    if (size >= 999.5) return Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');
    const digits = size === 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : size >= 0.09995 ? 3 : 4;
    return value.toFixed(digits);
  };

  // Ticks of an axis: no more digits than needed, large numbers shortened.
  const tick = (value) => {
    const size = Math.abs(value);
    if (size >= 1e9) return `${+(value / 1e9).toFixed(2)}G`;
    if (size >= 1e6) return `${+(value / 1e6).toFixed(2)}M`;
    if (size >= 1e4) return `${+(value / 1e3).toFixed(1)}k`;
    if (size >= 1e3) return figure(value);
    return `${+value.toFixed(size < 1 ? 3 : 2)}`;
  };

  // Colours come from the style sheet, so that light, dark and print have one definition.
  const theme = () => {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    return {
      ink: of('--ink'), soft: of('--soft'), line: of('--line'), paper: of('--paper'), wash: of('--wash'), bad: of('--bad'), good: of('--good'),
      hatch: of('--hatch'), series: [0, 1, 2, 3, 4, 5, 6, 7].map((i) => of(`--s${i}`)), font: of('--sans'),
    };
  };

  const wide = (t, text) => {
    pen.font = `12px ${t.font}`;
    return pen.measureText(text).width;
  };

  // A name that fits into a line of the legend.
  const short = (t, name, width) => {
    const most = width - 40;
    if (wide(t, name) <= most) return name;
    let kept = name.length - 1;
    while (kept > 1 && wide(t, `${name.slice(0, kept)}…`) > most) kept -= 1;
    return `${name.slice(0, kept)}…`;
  };

  // Rows that a legend with these names takes: all of them are shown, for on paper nobody turns its pages.
  const rowsOf = (t, names, width) => {
    let rows = 1;
    let at = 0;
    names.forEach((name) => {
      const needed = wide(t, short(t, name, width)) + 35;
      if (at > 0 && at + needed > width) {
        rows += 1;
        at = 0;
      }
      at += needed;
    });
    return rows;
  };

  const base = (t) => ({
    animation: false,
    textStyle: { fontFamily: t.font, color: t.ink },
    aria: { enabled: true },
    tooltip: {
      trigger: 'axis', confine: true, className: 'tip', backgroundColor: t.paper, borderColor: t.line,
      textStyle: { color: t.ink, fontSize: 13 }, axisPointer: { type: 'line', lineStyle: { color: t.soft } },
    },
    legend: {
      type: 'plain', top: 0, left: 0, itemWidth: 18, itemHeight: 9, itemGap: 8, textStyle: { color: t.ink, fontSize: 12, lineHeight: ROW - 8 },
    },
    grid: { left: 8, right: 16, top: 34, bottom: 22, containLabel: true },
  });

  // Few categories are all named, in as many lines as they need; of many, those that find room.
  const categoryAxis = (t, name, categories, width) => {
    const room = Math.max(40, (width - 60) / Math.max(1, categories.length) - 8);
    const lines = Math.min(4, Math.max(1, ...categories.map((text) => Math.ceil(wide(t, text) / room))));
    const few = categories.length <= 12;
    return {
      type: 'category', data: categories, name, nameLocation: 'middle', nameGap: 26 + (few ? (lines - 1) * 14 : 0),
      nameTextStyle: { color: t.soft, fontSize: 12 }, axisLine: { lineStyle: { color: t.soft } }, axisTick: { show: false },
      axisLabel: Object.assign(
        { color: t.ink, fontSize: 12, lineHeight: 14 },
        few ? { interval: 0, width: room, overflow: 'break' } : { hideOverlap: true },
      ),
    };
  };

  const valueAxis = (t, more) => Object.assign({
    type: 'value', min: 0, axisLabel: { color: t.soft, fontSize: 12, formatter: tick }, splitLine: { lineStyle: { color: t.line } },
    axisLine: { show: false }, axisTick: { show: false },
  }, more);

  const row = (colour, name, value) =>
    `<tr><td><i style="background:${colour}"></i>${escape(name)}</td><td><b>${value}</b></td></tr>`;

  // An interval as a vertical line with ends, drawn beside its point (bars know their own place by `slot` of `slots`).
  const whiskers = (t, line, colour, slot, slots) => ({
    type: 'custom', name: line.name, silent: true, clip: true, z: 5, itemStyle: { color: colour }, encode: { x: 0, y: [1, 2] },
    data: line.points.flatMap((p, i) => (p && p[2] > p[1] ? [[i, p[1], p[2]]] : [])),
    tooltip: { show: false },
    renderItem: (params, api) => {
      const low = api.coord([api.value(0), api.value(1)]);
      const high = api.coord([api.value(0), api.value(2)]);
      const band = api.size([1, 0])[0] * 0.7;
      const x = slots ? low[0] - band / 2 + (band * (slot + 0.5)) / slots : low[0];
      const stroke = { stroke: slots ? t.ink : colour, lineWidth: 1.4, fill: null, opacity: slots ? 0.75 : 0.8 };
      const piece = (x1, y1, x2, y2) => ({ type: 'line', shape: { x1, y1, x2, y2 }, style: stroke });
      return { type: 'group', children: [
        piece(x, low[1], x, high[1]), piece(x - 4, low[1], x + 4, low[1]), piece(x - 4, high[1], x + 4, high[1]),
      ] };
    },
  });

  // The values of a curve in pieces, one behind each gap: a stroke across categories that were not asked for is fair, one
  // across a category whose runs do not count would look like a figure.
  const strokes = (values, gaps) => [-1, ...gaps]
    .map((from, i) => values.map((v, at) => (at > from && at < (gaps[i] ?? values.length) ? v : null)))
    .filter((piece) => piece.some((v) => v !== null));

  const named = (spec) => spec.lines.filter((line) => !line.is_named_before).map((line) => line.name);

  const ladder = (spec, prefix) => ({
    title: spec.title, unit: spec.unit, names: named(spec),
    option: (t, { width, extra }) => {
      const measured = spec.lines.filter((line) => !line.reference);
      const colourOf = (line) => (line.reference ? t.soft : t.series[line.style % 8]);
      // Where the lines are the categories, each category has one bar, which stands in its middle.
      const alone = spec.categories.every((_, at) => measured.filter((line) => line.points[at]).length <= 1);
      const series = [];
      spec.lines.forEach((line) => {
        const colour = colourOf(line);
        const values = line.points.map((p) => (p ? p[0] : null));
        if (spec.bars && !line.reference) {
          const bars = { barCategoryGap: '30%', ...(alone ? { barGap: '-100%', barMaxWidth: 96 } : { barGap: '0%' }) };
          series.push({ type: 'bar', name: line.name, data: values, itemStyle: { color: colour }, ...bars });
          series.push(alone ? whiskers(t, line, colour, 0, 1) : whiskers(t, line, colour, measured.indexOf(line), measured.length));
        } else {
          strokes(values, line.gaps).forEach((data) => series.push({
            type: spec.bars ? 'scatter' : 'line', name: line.name, data, connectNulls: true, symbol: SYMBOLS[line.style % 8],
            symbolSize: line.reference ? 7 : 8, z: 4, itemStyle: { color: line.reference ? t.paper : colour, borderColor: colour, borderWidth: 1.5 },
            lineStyle: { color: colour, width: line.reference ? 1.3 : 2.2, type: line.reference ? 'dashed' : 'solid' },
            emphasis: { disabled: true },
          }));
          if (!line.reference) series.push(whiskers(t, line, colour));
        }
        if (line.invalid.length) {
          series.push({
            type: 'scatter', name: line.name, data: line.invalid.map((p) => ({ value: [p[0], Math.min(p[1], spec.scale.top ?? p[1])], run: p[2] })), symbol: HATCHED,
            symbolSize: 11, z: 6, itemStyle: { color: 'transparent', borderColor: colour, borderWidth: 1 }, cursor: 'pointer',
          });
        }
      });
      return Object.assign(base(t), {
        legend: Object.assign(base(t).legend, { data: named(spec), formatter: (name) => short(t, name, width) }),
        grid: Object.assign(base(t).grid, { top: 34 + extra }),
        xAxis: categoryAxis(t, spec.x, spec.categories, width), yAxis: valueAxis(t, { max: spec.scale.top, interval: spec.scale.step }), series,
        tooltip: Object.assign(base(t).tooltip, {
          formatter: (items) => {
            const at = (Array.isArray(items) ? items[0] : items).dataIndex;
            const rows = spec.lines.map((line) => {
              const p = line.points[at];
              if (!p) return '';
              const interval = p[3] > 1 ? ` (${figure(p[1])} – ${figure(p[2])}, ${p[3]} runs)` : '';
              return row(colourOf(line), line.name, `${figure(p[0])}</b>${interval}<b>`);
            });
            return `<div class="tip"><b>${escape(spec.x)} ${escape(spec.categories[at])}</b>, ${escape(spec.unit)}<table>${rows.join('')}</table></div>`;
          },
        }),
      });
    },
    click: (event) => {
      if (event.data && event.data.run) return `${prefix}${event.data.run}`;
      const line = spec.lines.find((l) => l.name === event.seriesName);
      const point = line && line.points[event.dataIndex];
      return point && point[4] ? `${prefix}${point[4]}` : null;
    },
  });

  // One value for each point of a series with its interval, and a line where its level changed.
  const history = (spec) => ({
    title: spec.metric, unit: 'each with its interval; a dashed line stands where the level changed', names: [],
    option: (t) => {
      const label = (at) => (Number.isInteger(at) && spec.points[at] ? spec.points[at][3] : '');
      const marks = spec.changes.map(([at, isWorse]) => ({
        xAxis: at - 0.5, lineStyle: { color: isWorse ? t.bad : t.good, width: 2, type: 'dashed' },
      }));
      return Object.assign(base(t), {
        legend: { show: false },
        grid: Object.assign(base(t).grid, { top: 10 }),
        xAxis: {
          type: 'value', min: -0.5, max: spec.points.length - 0.5, minInterval: 1, splitLine: { show: false },
          axisLine: { lineStyle: { color: t.soft } }, axisTick: { show: false },
          axisLabel: { color: t.ink, fontSize: 12, formatter: label, hideOverlap: true, showMinLabel: false, showMaxLabel: false },
        },
        yAxis: valueAxis(t),
        series: [
          {
            type: 'line', data: spec.points.map((p, at) => [at, p[0]]), symbol: 'circle', symbolSize: 8, z: 4,
            itemStyle: { color: t.series[0] }, lineStyle: { color: t.series[0], width: 1.4 }, emphasis: { disabled: true }, cursor: 'pointer',
            markLine: { silent: true, symbol: 'none', label: { show: false }, data: marks },
          },
          whiskers(t, spec, t.series[0]),
        ],
        tooltip: Object.assign(base(t).tooltip, {
          formatter: (items) => {
            const [value, low, high, build, at] = spec.points[items[0].value[0]];
            return `<div class="tip"><b>${escape(build)}</b>, ${escape(at)}<br>${figure(value)} (${figure(low)} – ${figure(high)})</div>`;
          },
        }),
      });
    },
    click: (event) => (event.componentType === 'series' ? `${spec.id}-${event.dataIndex}` : null),
  });

  // From the worst to the best second as a box, with the average as a stroke across it.
  const range = (t, line, colour, slot, slots) => ({
    type: 'custom', name: line.name, itemStyle: { color: colour }, encode: { x: 0, y: [1, 2, 3] },
    data: line.points.flatMap((p, i) => (p ? [[i, p[2], p[0], p[1]]] : [])),
    renderItem: (params, api) => {
      const [worst, average, best] = [1, 2, 3].map((at) => api.coord([api.value(0), api.value(at)]));
      const room = Math.min(40, (api.size([1, 0])[0] * 0.8) / slots);
      const wide = Math.max(3, Math.min(30, room - 3));
      const x = worst[0] + room * (slot - (slots - 1) / 2);
      return { type: 'group', children: [
        { type: 'rect', shape: { x: x - wide / 2, y: best[1], width: wide, height: Math.max(1, worst[1] - best[1]) },
          style: { fill: colour, fillOpacity: 0.28, stroke: colour, lineWidth: 1 } },
        { type: 'line', shape: { x1: x - wide / 2 - 1, y1: average[1], x2: x + wide / 2 + 1, y2: average[1] },
          style: { stroke: colour, lineWidth: 3 } },
      ] };
    },
  });

  const seconds = (spec) => ({
    title: spec.facet || 'TPS', unit: 'transactions per second: from the worst to the best second, the average as a stroke',
    names: spec.lines.map((line) => line.name),
    option: (t, { width, extra }) => Object.assign(base(t), {
      legend: Object.assign(base(t).legend, {
        data: spec.lines.map((line) => ({ name: line.name, icon: 'rect' })), formatter: (name) => short(t, name, width), selectedMode: false,
      }),
      grid: Object.assign(base(t).grid, { top: 34 + extra }),
      xAxis: categoryAxis(t, spec.x, spec.categories, width), yAxis: valueAxis(t, { max: spec.scale.top, interval: spec.scale.step }),
      series: spec.lines.map((line, i) => range(t, line, t.series[line.style % 8], i, spec.lines.length)),
      tooltip: Object.assign(base(t).tooltip, {
        axisPointer: { type: 'shadow', shadowStyle: { color: t.hatch } },
        formatter: (items) => {
          const at = items[0].value[0];
          const rows = spec.lines.map((line) => {
            const p = line.points[at];
            return p ? row(t.series[line.style % 8], line.name, `${figure(p[0])}</b> best ${figure(p[1])}, worst ${figure(p[2])}<b>`) : '';
          });
          return `<div class="tip"><b>${escape(spec.x)} ${escape(spec.categories[at])}</b><table>${rows.join('')}</table></div>`;
        },
      }),
    }),
  });

  // One metric over time, a line for each run; `of` takes a run's place and gives [time, value] pairs.
  const overTime = (group, title, unit, of, isFirst) => ({
    title, unit, low: !isFirst, group: true, names: isFirst ? group.runs.map((run) => run.id) : [],
    option: (t, { extra }) => {
      // One time axis for all charts of a cell: telemetry may begin before the warm-up and end after the drain.
      const times = group.runs.flatMap((run) => run.seconds.map((s) => s[0]));
      const from = Math.min(0, ...times);
      const to = Math.max(1, ...times);
      const series = group.runs.map((run, i) => ({
        type: 'line', name: run.id, data: of(i).filter((p) => p[0] >= from && p[0] <= to), symbol: 'none', emphasis: { disabled: true },
        lineStyle: { color: run.standing === 'counted' ? t.series[i % 8] : t.bad, width: 1.4, type: run.standing === 'counted' ? 'solid' : [4, 3] },
        itemStyle: { color: run.standing === 'counted' ? t.series[i % 8] : t.bad },
      }));
      const marked = group.runs.find((run) => run.steps.length);
      if (series.length && marked) {
        const areas = group.climb
          ? marked.steps.map((step, i) => [{ xAxis: step[0], itemStyle: { color: i % 2 ? 'transparent' : t.hatch },
              label: { show: isFirst, formatter: `${step[2]}`, position: 'insideTop', color: t.soft, fontSize: 11 } }, { xAxis: step[1] }])
          : from < 0 ? [[{ xAxis: from, itemStyle: { color: t.hatch } }, { xAxis: 0 }]] : [];
        // What was changed of the server at a moment: a line, as thin as an area can be.
        const changed = group.runs.find((run) => run.changes);
        for (const [at, name] of changed ? changed.changes : []) {
          areas.push([{ xAxis: at, itemStyle: { color: t.soft }, label: { show: isFirst, formatter: name, position: 'insideTop', color: t.soft, fontSize: 11 } }, { xAxis: at + (to - from) / 400 }]);
        }
        series[0].markArea = { silent: true, data: areas };
      }
      return Object.assign(base(t), {
        legend: isFirst ? base(t).legend : { show: false },
        grid: Object.assign(base(t).grid, { top: isFirst ? 34 + extra : 10, bottom: isFirst ? 22 : 6 }),
        xAxis: {
          type: 'value', min: from, max: to, minInterval: 1, name: isFirst ? (group.climb ? 's since the start of the run' : 's of the measured phase') : '', nameLocation: 'middle', nameGap: 26,
          nameTextStyle: { color: t.soft, fontSize: 12 }, axisLabel: { color: t.ink, fontSize: 12, formatter: tick, showMinLabel: false, showMaxLabel: false }, splitLine: { show: false },
          axisLine: { lineStyle: { color: t.soft } },
        },
        yAxis: valueAxis(t), series,
        tooltip: Object.assign(base(t).tooltip, {
          formatter: (items) => {
            const rows = items.map((item) => {
              const run = group.runs[item.seriesIndex];
              const word = run.standing === 'counted' ? `block ${run.block}` : run.standing;
              return row(item.color, `${run.id}, ${word}`, figure(item.value[1]));
            });
            return `<div class="tip"><b>${figure(items[0].value[0])} s</b>, ${escape(unit)}<table>${rows.join('')}</table></div>`;
          },
        }),
      });
    },
  });

  const mount = (parent, chart) => {
    const box = document.createElement('figure');
    box.className = 'chart-box';
    const caption = document.createElement('figcaption');
    caption.textContent = chart.title;
    const small = document.createElement('small');
    small.textContent = chart.unit;
    caption.append(small);
    const place = document.createElement('div');
    place.className = chart.low ? 'chart low' : chart.group ? 'chart tall' : 'chart';
    box.append(caption, place);
    parent.append(box);
    return { chart, place };
  };

  // What to draw at the width that the place has now; a chart is as much higher as the names of its lines need.
  const fitted = ({ chart, place }, t) => {
    place.style.height = '';
    const width = place.clientWidth;
    const extra = (rowsOf(t, chart.names, width) - 1) * ROW;
    if (extra) place.style.height = `${place.clientHeight + extra}px`;
    return chart.option(t, { width, extra });
  };

  // After all boxes of a grid are there: a chart takes the width that its box has then.
  const fill = ({ chart, place }, t) => {
    const option = fitted({ chart, place }, t);
    const drawn = echarts.init(place, null, { renderer: 'svg' });
    drawn.setOption(option);
    if (chart.click) {
      drawn.on('click', (event) => {
        const target = chart.click(event);
        if (target) location.hash = target;
      });
    }
    const entry = { chart, place, drawn };
    charts.push(entry);
    return entry;
  };

  // Telemetry: the place of the times, and the values. Samplers add a last short sample when a run stops.
  const points = (group, series) => {
    if (!series) return [];
    const times = group.clocks[series[0]];
    return series[1].flatMap((value, i) => (i > 0 && times[i] - times[i - 1] < 0.1 ? [] : [[times[i], value]]));
  };

  const timeline = (parent, spec, prefix) => {
    if (!spec.times.length) return;
    const controls = document.createElement('div');
    controls.className = 'controls';
    const choice = document.createElement('select');
    choice.setAttribute('aria-label', 'Cell');
    spec.times.forEach((group, i) => choice.add(new Option(group.label, i)));
    controls.append(choice);
    const area = document.createElement('div');
    const rest = document.createElement('div');
    rest.className = 'charts small';
    const more = document.createElement('details');
    more.className = 'more';
    const summary = document.createElement('summary');
    const hidden = document.createElement('div');
    hidden.className = 'charts small';
    more.append(summary, hidden);
    parent.append(controls, area, rest, more);
    let mine = [];
    const show = () => {
      mine.forEach((entry) => { entry.drawn.dispose(); charts.splice(charts.indexOf(entry), 1); });
      area.replaceChildren();
      rest.replaceChildren();
      hidden.replaceChildren();
      const t = theme();
      const group = spec.times[choice.value];
      const column = (at) => (i) => group.runs[i].seconds.map((s) => [s[0], s[at]]);
      const boxes = [mount(area, overTime(group, `TPS, ${group.label}`, 'committed transactions per second', column(1), true))];
      boxes.push(mount(rest, overTime(group, `${group.percentile} of response time`, 'ms', column(2))));
      if (group.runs.some((run) => run.seconds.some((s) => s[3] > 0))) {
        boxes.push(mount(rest, overTime(group, 'Failed transactions', 'in each second', column(3))));
      }
      const telemetry = (place) => (one) => mount(place, overTime(group, one.name, one.unit, (i) => points(group, one.runs[i])));
      boxes.push(...group.telemetry.slice(0, SHOWN).map(telemetry(rest)));
      mine = boxes.map((box) => fill(box, t));
      const behind = group.telemetry.slice(SHOWN);
      more.hidden = behind.length === 0;
      summary.textContent = `${behind.length} more series`;
      // Drawn when they are seen: a chart in a closed box has no width.
      const reveal = () => {
        if (!more.open || hidden.childElementCount) return;
        mine.push(...behind.map(telemetry(hidden)).map((box) => fill(box, theme())));
        link();
      };
      const link = () => { mine.forEach((entry) => { entry.drawn.group = `${prefix}time`; }); echarts.connect(`${prefix}time`); };
      more.ontoggle = reveal;
      reveal();
      link();
    };
    choice.addEventListener('change', show);
    show();
  };

  const draw = () => {
    const t = theme();
    document.querySelectorAll('.charts[data-history]').forEach((parent) => {
      fill(mount(parent, history(data.histories[Number(parent.dataset.history)])), t);
    });
    document.querySelectorAll('.charts[data-kind]').forEach((parent) => {
      const at = Number(parent.dataset.study);
      const spec = data.studies[at];
      const prefix = `s${at + 1}-`;
      const wanted = parent.dataset.kind === 'ladder'
        ? spec.ladders.filter((one) => one.metric === parent.dataset.metric).map((one) => ladder(one, prefix))
        : spec.seconds.map(seconds);
      wanted.map((chart) => mount(parent, chart)).forEach((box) => fill(box, t));
    });
    document.querySelectorAll('.timeline').forEach((parent) => {
      const at = Number(parent.dataset.study);
      timeline(parent, data.studies[at], `s${at + 1}-`);
    });
    document.documentElement.dataset.charts = charts.length;
  };

  const redraw = () => {
    const t = theme();
    charts.forEach((entry) => {
      const option = fitted(entry, t);
      entry.drawn.resize();
      entry.drawn.setOption(option, true);
    });
  };

  // A link into a run or into a table of points opens it.
  const follow = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const closed = target && target.closest('details');
    if (closed) { closed.open = true; target.scrollIntoView(); }
  };

  let pending = 0;
  addEventListener('resize', () => { clearTimeout(pending); pending = setTimeout(redraw, 80); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  // Paper is light and narrower than the window.
  addEventListener('beforeprint', () => { document.querySelectorAll('details.more').forEach(more => { more.open = true; }); document.documentElement.classList.add('printing'); redraw(); });
  addEventListener('afterprint', () => { document.documentElement.classList.remove('printing'); redraw(); });
  addEventListener('hashchange', follow);
  draw();
  follow();
})();
