"""Public item features in the recommenders: their value, and maps to items that were not in training."""

from apportion.recommend.features.new_items import FeatureMap

__all__ = ["FeatureMap"]
