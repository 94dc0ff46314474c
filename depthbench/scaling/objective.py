"""The distance between a law and runs, with its gradient: Huber on log loss."""

import numpy as np

from depthbench.scaling.forms import Array, Bounds, Form
from depthbench.scaling.rows import Runs

HUBER_DELTA = 1e-3  # of log loss, as in the Chinchilla fits
_LOG_TERM_BOUNDS = (-12.0, 3.0)  # of a term of the loss relative to the median loss, in logs
_LOG_TERM_BOX = (-3.0, 0.0)
_EXPONENT_BOUNDS, _EXPONENT_BOX = (1e-3, 3.0), (0.05, 1.0)


class Objective:
    """Parameters θ: ln E, ln of the size term, α, ln of the token term, β, then g's constants.

    The terms are taken at the centre of the data: A and B_D themselves are all but collinear with
    the exponents.
    """

    def __init__(self, runs: Runs, form: Form) -> None:
        self.runs, self.form = runs, form
        self.log_loss = np.log(runs.loss)
        self.log_D = np.log(runs.D)
        self.log_N_reference = float(np.mean(np.log(runs.N_once + runs.N_rec)))
        self.log_D_reference = float(np.mean(self.log_D))
        level = float(np.median(self.log_loss))
        self.bounds = _ranges(level, _LOG_TERM_BOUNDS, _EXPONENT_BOUNDS) + form.bounds
        self.box = _ranges(level, _LOG_TERM_BOX, _EXPONENT_BOX) + form.box

    def predict(self, theta: Array) -> tuple[Array, Array]:
        """Predicted log loss, [n], and its Jacobian, [n, len(theta)]."""
        log_E, log_A, alpha, log_B, beta = theta[:5]
        runs, g_values = self.runs, theta[5:]
        log_g, slopes = self.form.log_g(g_values, runs.T, runs.B)
        recurrent = runs.N_rec * np.exp(log_g)
        effective = runs.N_once + recurrent
        size = np.log(effective) - self.log_N_reference
        tokens = self.log_D - self.log_D_reference
        by_size, by_tokens = np.exp(log_A - alpha * size), np.exp(log_B - beta * tokens)
        loss = np.exp(log_E) + by_size + by_tokens
        share_N, share_D = by_size / loss, by_tokens / loss
        jacobian = np.empty((len(loss), len(theta)))
        jacobian[:, 0] = 1.0 - share_N - share_D
        jacobian[:, 1] = share_N
        jacobian[:, 2] = -share_N * size
        jacobian[:, 3] = share_D
        jacobian[:, 4] = -share_D * tokens
        by_g = -share_N * alpha * recurrent / effective
        jacobian[:, 5:] = by_g[:, None] * slopes
        return np.log(loss), jacobian

    def residuals(self, theta: Array) -> Array:
        """Predicted minus observed log loss, [n]."""
        return self.predict(theta)[0] - self.log_loss

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Mean Huber loss divided by δ², and its gradient.

        Undivided it is of the order of δ², below what an optimiser takes for zero.
        """
        predicted, jacobian = self.predict(theta)
        scaled = (predicted - self.log_loss) / HUBER_DELTA
        clipped = np.clip(scaled, -1.0, 1.0)
        value = float(np.mean(clipped * (scaled - 0.5 * clipped)))
        return value, clipped @ jacobian / (HUBER_DELTA * len(scaled))

    def constants(self, theta: Array) -> dict[str, float]:
        """E, A, alpha, B_D, beta and g's constants."""
        log_E, log_A, alpha, log_B, beta = (float(x) for x in theta[:5])
        return {
            "E": float(np.exp(log_E)),
            "A": float(np.exp(log_A + alpha * self.log_N_reference)),
            "alpha": alpha,
            "B_D": float(np.exp(log_B + beta * self.log_D_reference)),
            "beta": beta,
            **dict(zip(self.form.names, (float(x) for x in theta[5:]), strict=True)),
        }

    def theta(self, constants: dict[str, float]) -> Array:
        """The inverse of `constants`."""
        alpha, beta = constants["alpha"], constants["beta"]
        base = [
            np.log(constants["E"]),
            np.log(constants["A"]) - alpha * self.log_N_reference,
            alpha,
            np.log(constants["B_D"]) - beta * self.log_D_reference,
            beta,
        ]
        return np.array([*base, *(constants[name] for name in self.form.names)])

    def by_constants(self, theta: Array) -> Array:
        """Jacobian of log loss by `constants`, [n, len(theta)], in their order."""
        constants = self.constants(theta)
        jacobian = self.predict(theta)[1]
        by_alpha = jacobian[:, 2] - self.log_N_reference * jacobian[:, 1]
        by_beta = jacobian[:, 4] - self.log_D_reference * jacobian[:, 3]
        base = [
            jacobian[:, 0] / constants["E"],
            jacobian[:, 1] / constants["A"],
            by_alpha,
            jacobian[:, 3] / constants["B_D"],
            by_beta,
        ]
        return np.column_stack([*base, jacobian[:, 5:]])


def _ranges(level: float, log_term: tuple[float, float], exponent: tuple[float, float]) -> Bounds:
    """Of the first five parameters, with terms relative to the log loss `level`."""
    term = (level + log_term[0], level + log_term[1])
    return (term, term, exponent, term, exponent)
