"""Optimal weights of labels for label-private regression, and the solvers behind them."""

from apportion.regression.label_weights.optimal import LabelWeights, least_squares_weights, optimal_label_weights

__all__ = ["LabelWeights", "least_squares_weights", "optimal_label_weights"]
