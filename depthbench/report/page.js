"use strict";
for (const group of document.querySelectorAll("section.group")) {
  const buttons = [...group.querySelectorAll(".legend button[data-series]")];
  const all = group.querySelector(".legend .all");
  const parts = (series) => group.querySelectorAll(`[data-series="${series}"]`);
  const drawn = (series) => group.querySelectorAll(`figure [data-series="${series}"]`);

  const light = (series) => {
    for (const part of group.querySelectorAll(".lit")) part.classList.remove("lit");
    group.classList.toggle("focused", series !== null);
    if (series !== null) for (const part of parts(series)) part.classList.add("lit");
  };
  const show = (button, shown) => {
    button.setAttribute("aria-pressed", String(shown));
    for (const part of drawn(button.dataset.series)) part.classList.toggle("hidden", !shown);
    all.hidden = buttons.every((other) => other.getAttribute("aria-pressed") === "true");
  };

  for (const button of buttons) {
    button.disabled = false;
    button.addEventListener("click", () => show(button, button.getAttribute("aria-pressed") !== "true"));
  }
  if (all) {
    all.disabled = false;
    all.hidden = true;
    all.addEventListener("click", () => {
      for (const button of buttons) show(button, true);
      buttons[0].focus();
    });
  }
  const bands = group.querySelector(".legend .bands");
  if (bands) {
    bands.disabled = false;
    bands.hidden = !group.querySelector("figure .band");
    bands.addEventListener("click", () => {
      const on = group.classList.toggle("banded");
      bands.setAttribute("aria-pressed", String(on));
    });
  }
  const target = (event) => event.target.closest("[data-series]");
  for (const enter of ["pointerover", "focusin", "lit"]) {
    group.addEventListener(enter, (event) => light(target(event)?.dataset.series ?? null));
  }
  group.addEventListener("pointerleave", () => light(null));
  group.addEventListener("focusout", () => light(null));
}
const reveal = () => {
  const found = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const sheet = found && found.closest("details");
  if (sheet) {
    sheet.open = true;
    found.scrollIntoView();
  }
};
addEventListener("hashchange", reveal);
reveal();
