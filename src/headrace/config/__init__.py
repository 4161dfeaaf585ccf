"""Every setting once: Kafka's name, type, default, bounds, whether it may change at run time.

    settings = load_settings(Path("server.properties"), os.environ, {"num.partitions": "3"})
    settings[config.NUM_PARTITIONS]  # 3

Settings appear here with the code that reads them. Kafka's names have Kafka's meaning; Headrace's
own start with `headrace.`, except for `http.listen`. This package holds the definitions, the
parsing of values and their precedence; never what is done with them.
"""

from headrace.config.broker import *  # noqa: F403
from headrace.config.client_metrics import CLIENT_METRICS_CONFIGS as CLIENT_METRICS_CONFIGS
from headrace.config.cluster import *  # noqa: F403
from headrace.config.effective import ConfigSource as ConfigSource
from headrace.config.effective import effective_topic_configs as effective_topic_configs
from headrace.config.elections import *  # noqa: F403
from headrace.config.group_configs import GROUP_CONFIGS as GROUP_CONFIGS
from headrace.config.groups import *  # noqa: F403
from headrace.config.limits import *  # noqa: F403
from headrace.config.live import AnySettings as AnySettings
from headrace.config.live import LiveSettings as LiveSettings
from headrace.config.loading import load_settings as load_settings
from headrace.config.pages import *  # noqa: F403
from headrace.config.quotas import *  # noqa: F403
from headrace.config.raft import *  # noqa: F403
from headrace.config.registry import SETTINGS as SETTINGS
from headrace.config.registry import setting as setting
from headrace.config.replication import *  # noqa: F403
from headrace.config.security import *  # noqa: F403
from headrace.config.setting import DAY_MS as DAY_MS
from headrace.config.setting import INT32_MAX as INT32_MAX
from headrace.config.setting import INT64_MAX as INT64_MAX
from headrace.config.setting import AnySetting as AnySetting
from headrace.config.setting import ConfigType as ConfigType
from headrace.config.setting import InvalidSetting as InvalidSetting
from headrace.config.setting import Scope as Scope
from headrace.config.setting import Setting as Setting
from headrace.config.settings import Settings as Settings
from headrace.config.settings import Source as Source
from headrace.config.share import *  # noqa: F403
from headrace.config.storage import *  # noqa: F403
from headrace.config.swim import *  # noqa: F403
from headrace.config.tier import *  # noqa: F403
from headrace.config.topic import *  # noqa: F403
from headrace.config.transactions import *  # noqa: F403
