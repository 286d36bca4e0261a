"""Feature maps of tables that tests make."""

from common.feature_settings import FeatureSettings
from common.map_fitting import fit_feature_map
from common.tables import TableSource


def map_of(public, target="y", *, private=False, **features):
    """The map of these public records, with these settings of ``[features]``."""
    settings = FeatureSettings(target=target, public=TableSource(), **features)
    return fit_feature_map(public, settings, source="public", private=private)
