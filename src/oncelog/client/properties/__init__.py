"""librdkafka's properties: names, aliases, ranges, defaults, refusals."""

from oncelog.client.properties.common import AdminSettings, ClientSettings
from oncelog.client.properties.consumer import ConsumerSettings
from oncelog.client.properties.producer import ProducerSettings
from oncelog.client.properties.settings_given import NOTHING_GIVEN, admin_settings, consumer_settings, producer_settings

__all__ = [
    "NOTHING_GIVEN",
    "AdminSettings",
    "ClientSettings",
    "ConsumerSettings",
    "ProducerSettings",
    "admin_settings",
    "consumer_settings",
    "producer_settings",
]
