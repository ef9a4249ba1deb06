"""The signs and names that are known, and how LaTeX writes those beyond ASCII."""

__all__ = [
    "ACCENTS", "FUNCTIONS", "GREEK", "NAMES", "SIGNS", "SUBSCRIPTS", "SUPERSCRIPTS"
]  # fmt: skip

SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-", strict=True))
SIGNS = {
    "−": "-", "‐": "-", "‑": "-", "‒": "-", "–": "-", "—": "-", "﹣": "-",
    "×": "\\times ", "✕": "\\times ", "·": "\\cdot ", "⋅": "\\cdot ", "∙": "\\cdot ",
    "÷": "\\div ", "⁄": "/", "∕": "/", "±": "\\pm ", "∓": "\\mp ",
    "≤": "\\le ", "⩽": "\\le ", "≥": "\\ge ", "⩾": "\\ge ", "≠": "\\ne ", "≈": "\\approx ",
    "∞": "\\infty ", "√": "\\sqrt ", "∪": "\\cup ", "∩": "\\cap ", "∅": "\\emptyset ",
    "∈": "\\in ", "ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}", "ℕ": "\\mathbb{N}",
    "ℚ": "\\mathbb{Q}", "ℂ": "\\mathbb{C}", "⟨": "\\langle ", "⟩": "\\rangle ",
    "°": "^{\\circ}", "º": "^{\\circ}", "′": "'", "″": "''", "’": "'", "‘": "'", "“": '"',
    "”": '"', "…": "\\ldots ", "，": ",", "。": ".", "Å": "Å",
}  # fmt: skip
GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta",
    "η": "eta", "θ": "theta", "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "µ": "mu",
    "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "υ": "upsilon",
    "φ": "phi", "ϕ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta",
    "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi",
    "Ω": "Omega",
}  # fmt: skip
_OTHER_NAMES = (
    "varepsilon vartheta varrho varphi Upsilon ell hbar aleph nabla partial imath jmath Re Im odot"
)
NAMES = frozenset((*GREEK.values(), *_OTHER_NAMES.split()))
"""The commands that are letters."""
_FUNCTION_NAMES = (
    "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot arcsec arccsc ln log "
    "lg exp max min gcd lcm mod det floor ceil abs sqrt sgn"
)
FUNCTIONS = {name: name for name in _FUNCTION_NAMES.split()} | {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "tg": "tan", "ctg": "cot",
    "arctg": "arctan",
}  # fmt: skip
"""The functions' names, and what they are called here."""
ACCENTS = "vec bar hat dot ddot tilde overline underline widehat overrightarrow angle triangle"
