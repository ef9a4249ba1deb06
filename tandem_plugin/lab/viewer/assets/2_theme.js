// ---- theme -------------------------------------------------------------------------------------
const themes = ["system", "light", "dark"];
const setTheme = (theme) => {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  find("theme").textContent = "Theme: " + theme;
  try { localStorage.setItem("tandem-theme", theme); } catch { /* storage may be forbidden */ }
};
let stored = null;
try { stored = localStorage.getItem("tandem-theme"); } catch { /* as above */ }
let theme = themes.includes(stored) ? stored : "system";
setTheme(theme);
find("theme").addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  setTheme(theme);
});
