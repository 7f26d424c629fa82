"""The encoder of `apportion federate`: public item features and protected statistics of ratings, by letters.

Krichene et al. (2024), Algorithm 8: the server trains the encoder on released statistics, and sends encoded items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from apportion.cli.feature_files import match_features, read_features
from apportion.cli.feature_options import FeatureOptions
from apportion.cli.progress import Reporter
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data.features import ItemFeatures
    from apportion.federated import DataElsewhere
    from apportion.transport.configuration import Federation

_DIMENSION: Final = 5  # of the paper
_START: Final = 0  # seed of the encoder's first parameters, which are public


def fitted_encoder(federation: Federation, data: DataElsewhere, common: Mapping[str, Any]) -> Any:
    """Fit an encoder and the item vectors around it; return the model.

    Args:
        federation: with the file of features and the number of releases in a round.
        data: which are elsewhere.
        common: settings of every estimator; those that are None have the estimator's defaults.
    """
    from apportion.published.public_features import EncoderMinimisation

    given = {"dimension": _DIMENSION, **{name: held for name, held in common.items() if held is not None}}
    features = _features(federation, data)
    update = _update(features, data, given["dimension"] + 1, federation.resamples)
    return EncoderMinimisation(update=update, features=features, **given).fit(data).model_


def _features(federation: Federation, data: DataElsewhere) -> ItemFeatures:
    with Reporter() as reporter:
        features = read_features(FeatureOptions(features=federation.features), reporter)
        match_features(features, data.task_ids, reporter)
    assert features is not None  # a configuration of an encoder has them
    return features


def _update(features: ItemFeatures, data: DataElsewhere, width: int, resamples: int) -> Any:
    """Return the item update: SSP-c with one release in a round, SSP-i with several."""
    try:
        import torch

        from apportion.published.public_features import EncoderStatistics, TwoLayerEncoder
    except ImportError:
        raise InputError("An encoder needs torch: pip install 'apportion[torch]'.", argument="kind") from None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_START)
        encoder = TwoLayerEncoder(features.for_tasks(data.task_ids).groups, width)
    return EncoderStatistics(encoder, resamples=resamples)
