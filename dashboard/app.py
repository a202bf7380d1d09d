"""The dashboard's script: theme, viewer, navigation. Run by ``dashboard.serve``."""

import os

from dashboard import navigation, session, theme
from dashboard.settings import Settings

theme.configure()
settings = Settings.from_environment(os.environ)
navigation.show(session.current_api(settings), settings, session.current_zone())
