// Figures are drawn when they come into view, in the colours of the page, and again when those change.
"use strict";
(function () {
  const style = () => getComputedStyle(document.documentElement);
  function coloured(value, name, css) {
    if (Array.isArray(value)) return value.map((part) => coloured(part, name, css));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v, k, css)]));
    }
    const isColour = typeof value === "string" && /color$/i.test(name) && value.startsWith("--");
    return isColour ? css.getPropertyValue(value).trim() || value : value;
  }
  function axis(own, css) {
    const base = {
      gridcolor: css.getPropertyValue("--grid").trim(), linecolor: css.getPropertyValue("--line").trim(),
      zeroline: false, automargin: true, ticks: "", fixedrange: true,
    };
    return { ...base, ...own, title: { standoff: 8, ...(own && own.title) } };
  }
  function layout(own, css, width) {
    const small = width < 480;
    return {
      ...own,
      xaxis: axis(own.xaxis, css), yaxis: axis(own.yaxis, css),
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: css.getPropertyValue("--sans").trim(), size: small ? 11 : 12.5, color: css.getPropertyValue("--soft").trim() },
      margin: own.margin || { l: small ? 56 : 76, r: 14, t: 10, b: 48 },
      legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)", itemclick: false, itemdoubleclick: false },
      hoverlabel: {
        bgcolor: css.getPropertyValue("--paper").trim(), bordercolor: css.getPropertyValue("--muted").trim(),
        font: { color: css.getPropertyValue("--ink").trim(), family: css.getPropertyValue("--sans").trim(), size: 12.5 }, align: "left",
      },
      hovermode: "closest", dragmode: false,
    };
  }
  const figures = Array.from(document.querySelectorAll(".figure"), (place) => ({
    place, told: JSON.parse(place.querySelector("script").textContent), drawn: false,
  }));
  function draw(figure) {
    const css = style();
    const told = coloured(figure.told, "", css);
    figure.drawn = true;
    Plotly.react(figure.place, told.data, layout(told.layout, css, figure.place.clientWidth),
      { displayModeBar: false, responsive: true });
  }
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const figure = figures.find((one) => one.place === entry.target);
      if (entry.isIntersecting && !figure.drawn) draw(figure);
    }
  }, { rootMargin: "600px" });
  for (const figure of figures) seen.observe(figure.place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const figure of figures) if (figure.drawn) draw(figure);
  });
  addEventListener("beforeprint", () => { for (const figure of figures) if (!figure.drawn) draw(figure); });
})();
