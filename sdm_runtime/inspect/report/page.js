// The slider names a step: every share and every patched number becomes that step's.
"use strict";
const slider = document.getElementById("step");
const output = document.getElementById("step-value");

function moveShares() {
  const step = Number(slider.value);
  output.value = step;
  for (const bar of document.querySelectorAll(".bar")) {
    const { first, last, bytes, extent, steps } = bar.dataset;
    const stride = steps > 1 ? (last - first) / (steps - 1) : 0;
    const start = Math.round(Number(first) + Math.min(step, steps - 1) * stride);
    const share = bar.firstElementChild;
    share.style.left = `${(100 * start) / Math.max(extent, 1)}%`;
    const end = start + Number(bytes);
    bar.nextElementSibling.textContent =
      `${start.toLocaleString("en")} .. ${end.toLocaleString("en")}`;
  }
}

// 64-bit numbers: BigInt.
function patchNumbers() {
  const step = BigInt(slider.value);
  for (const number of document.querySelectorAll("[data-base]")) {
    const { base, stride, lowest, highest } = number.dataset;
    let value = BigInt(base) + step * BigInt(stride);
    if (value < BigInt(lowest)) value = BigInt(lowest);
    if (value > BigInt(highest)) value = BigInt(highest);
    number.textContent = value.toString();
  }
}

slider.addEventListener("input", () => {
  moveShares();
  patchNumbers();
});
