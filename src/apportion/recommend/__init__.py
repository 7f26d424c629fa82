"""Recommenders: private ones for ratings and clicks, parts to build others, non-private twins, models on disk."""

from apportion.recommend.als import ClickRecommender, RatingRecommender
from apportion.recommend.alternating import AlternatingMinimisation
from apportion.recommend.clicks import ClickSettings, PrivateClickRecommender
from apportion.recommend.convex_model import ConvexModel
from apportion.recommend.model import ClickModel, ItemModel, RatingModel
from apportion.recommend.ratings import PrivateRatingRecommender, RatingSettings
from apportion.recommend.storage import load, save
from apportion.recommend.updates import GradientDescent, ItemUpdate, SufficientStatistics

__all__ = [
    "AlternatingMinimisation",
    "ClickModel",
    "ClickRecommender",
    "ClickSettings",
    "ConvexModel",
    "GradientDescent",
    "ItemModel",
    "ItemUpdate",
    "PrivateClickRecommender",
    "PrivateRatingRecommender",
    "RatingModel",
    "RatingRecommender",
    "RatingSettings",
    "SufficientStatistics",
    "load",
    "save",
]
