"""Mechanisms: objects that own the norm, noise, draw, cost and words of a release. One file each."""

from apportion.privacy.mechanisms.box import Box
from apportion.privacy.mechanisms.exponential import Exponential
from apportion.privacy.mechanisms.gaussian import Gaussian
from apportion.privacy.mechanisms.known import mechanism_class
from apportion.privacy.mechanisms.laplace import Laplace
from apportion.privacy.mechanisms.listed import PointsOfList
from apportion.privacy.mechanisms.looks import FirstLook, SecondLook
from apportion.privacy.mechanisms.mechanism import Mechanism, Opened, PlannedMechanism, PlannedShare, Statistic
from apportion.privacy.mechanisms.points import PointsOnLine
from apportion.privacy.mechanisms.sampled import SampledGaussian
from apportion.privacy.mechanisms.thresholded import ThresholdedGaussian, ThresholdedLaplace

__all__ = [
    "Box",
    "Exponential",
    "FirstLook",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "Opened",
    "PlannedMechanism",
    "PlannedShare",
    "PointsOfList",
    "PointsOnLine",
    "SampledGaussian",
    "SecondLook",
    "Statistic",
    "ThresholdedGaussian",
    "ThresholdedLaplace",
    "mechanism_class",
]
