"""Public item features in the recommenders: what they are worth, and maps to items that training never met."""

from apportion.recommend.features.new_items import FeatureMap

__all__ = ["FeatureMap"]
