"""Sums over users on Apache Spark, or on any server that speaks Spark Connect; `apportion[spark]` brings PySpark."""

from apportion.engines.spark.engine import SparkEngine

__all__ = ["SparkEngine"]
