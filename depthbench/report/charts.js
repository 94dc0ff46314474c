// What a mark of a figure is: beside the pointer, or told to who goes there with arrow keys.
const tip = document.createElement("div");
tip.className = "tip";
tip.setAttribute("role", "status");
document.body.append(tip);
let current = null;
const forget = () => {
  current?.classList.remove("current");
  current = null;
  tip.textContent = "";
};
const tell = (mark) => {
  if (mark === current) return;
  forget();
  current = mark;
  mark.classList.add("current");
  const [name, ...rest] = mark.dataset.tip.split("\n");
  const strong = document.createElement("strong");
  strong.textContent = name;
  tip.append(strong, ...rest.flatMap((line) => [document.createElement("br"), line]));
  const box = mark.getBoundingClientRect();
  const room = document.documentElement.clientWidth - tip.offsetWidth - 4;
  const above = box.top - tip.offsetHeight - 8;
  tip.style.left = `${scrollX + Math.max(4, Math.min(box.right + 6, room))}px`;
  tip.style.top = `${scrollY + (above < 0 ? box.bottom + 8 : above)}px`;
};
for (const svg of document.querySelectorAll("figure svg.plot")) {
  const marks = [...svg.querySelectorAll("[data-tip]")];
  if (!marks.length) continue;
  svg.tabIndex = 0;
  const shown = () => marks.filter((mark) => !mark.closest(".hidden"));
  const place = (mark) => {
    const { x, y } = mark.getBoundingClientRect();
    return { x, y };
  };
  const owner = (mark) => mark.closest("[data-series]").dataset.series;
  const step = (mark, key) => {
    const every = shown();
    const from = place(mark);
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const own = every.filter((other) => owner(other) === owner(mark));
      own.sort((a, b) => place(a).x - place(b).x);
      return own[own.indexOf(mark) + (key === "ArrowRight" ? 1 : -1)];
    }
    const wide = svg.getBoundingClientRect().width / 40;
    const near = every.filter((other) => Math.abs(place(other).x - from.x) < wide);
    near.sort((a, b) => place(a).y - place(b).y);
    return near[near.indexOf(mark) + (key === "ArrowDown" ? 1 : -1)];
  };
  const light = (mark) => mark.dispatchEvent(new CustomEvent("lit", { bubbles: true }));
  svg.addEventListener("pointerover", (event) => {
    const mark = event.target.closest("[data-tip]");
    if (mark) tell(mark);
  });
  svg.addEventListener("pointerout", forget);
  svg.addEventListener("blur", forget);
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return forget();
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const inside = current && svg.contains(current) && !current.closest(".hidden");
    const next = inside ? step(current, event.key) : shown()[0];
    if (next) {
      tell(next);
      light(next);
    }
  });
}
