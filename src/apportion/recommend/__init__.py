"""Recommenders: private ones for ratings and clicks, their non-private twins, and models on disk."""

from apportion.recommend.als import ClickRecommender, RatingRecommender
from apportion.recommend.clicks import ClickSettings, PrivateClickRecommender
from apportion.recommend.model import ClickModel, ItemModel, RatingModel
from apportion.recommend.on_spark import recommend_on_spark
from apportion.recommend.rating_settings import RatingSettings
from apportion.recommend.ratings import PrivateRatingRecommender
from apportion.recommend.storage import load, save

__all__ = [
    "ClickModel",
    "ClickRecommender",
    "ClickSettings",
    "ItemModel",
    "PrivateClickRecommender",
    "PrivateRatingRecommender",
    "RatingModel",
    "RatingRecommender",
    "RatingSettings",
    "load",
    "recommend_on_spark",
    "save",
]
