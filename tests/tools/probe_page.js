// What a page looks like from inside: written into the page, for --dump-dom.
(async () => {
  const found = { width: innerWidth, dark: matchMedia("(prefers-color-scheme: dark)").matches, scroll: document.documentElement.scrollWidth, errors: window.probed_errors, contrast: [], missing: [] };
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const luminance = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255, 255]; };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || ["STYLE", "SCRIPT", "TITLE", "title"].includes(e.tagName)) continue;
    const style = getComputedStyle(e);
    const ink = rgba(e instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [luminance(ink), luminance(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.contrast.push([walker.currentNode.data.trim().slice(0, 40), ratio]);
  }
  for (const svg of document.querySelectorAll("svg")) if (svg.getAttribute("role") !== "img" || !svg.getAttribute("aria-label")) found.missing.push("svg without a label");
  for (const t of document.querySelectorAll("svg text")) { const [a, b] = [t, t.ownerSVGElement].map((e) => e.getBoundingClientRect()); if (a.left < b.left - 1 || a.right > b.right + 1) found.missing.push(`an end of ${t.textContent}`); }
  for (const input of document.querySelectorAll("input")) if (!input.labels.length) found.missing.push("input without a label");
  for (const t of document.querySelectorAll("table")) if (!t.caption || !t.tHead || t.querySelector("th:not([scope])")) found.missing.push(`table ${t.id}`);
  for (const td of document.querySelectorAll("table.cards td")) if (td.checkVisibility() && getComputedStyle(td).display === "flex" && td.getBoundingClientRect().right < td.parentElement.getBoundingClientRect().right - 1) found.missing.push(`the end of a line of ${td.closest("table").id}`);
  found.lines = [...document.querySelectorAll("table.cards td")].filter((td) => getComputedStyle(td).display === "flex").length;
  // What has no box of its own is where its words are.
  found.unseen = [...document.querySelectorAll("th, th button, td, dt, dd")].filter((e) => getComputedStyle(e).display !== "contents" && !e.checkVisibility()).map((e) => e.textContent);
  found.boxes = [...document.querySelectorAll("th button")].filter((e) => getComputedStyle(e).display !== "contents").length;
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size < ids.length) found.missing.push("an id twice");
  const levels = [...document.querySelectorAll("h1,h2,h3")].map((h) => Number(h.tagName[1]));
  if (levels[0] !== 1 || levels.some((l, i) => i && l > levels[i - 1] + 1)) found.missing.push("headings out of order");
  const owners = document.querySelector("#owners");
  if (owners) {
    const names = () => [...owners.tBodies[0].rows].filter((r) => !r.hidden).map((r) => r.cells[0].textContent);
    owners.tHead.rows[0].cells[1].querySelector("button").click();
    found.sorted = [...owners.tBodies[0].rows].map((r) => Number(r.cells[1].dataset.value));
    const search = document.querySelector('input[data-table="owners"]');
    if (search) { search.value = names()[0]; search.dispatchEvent(new Event("input")); found.searched = names(); search.value = ""; search.dispatchEvent(new Event("input")); }
  }
  if (window.axe) {
    const told = await axe.run(document, { resultTypes: ["violations"] });
    found.axe = told.violations.map((v) => [v.id, v.nodes.slice(0, 3).map((n) => n.html.slice(0, 120))]);
  }
  const out = document.createElement("script");
  out.type = "application/json"; out.id = "probed"; out.textContent = JSON.stringify(found);
  document.body.append(out);
})();
