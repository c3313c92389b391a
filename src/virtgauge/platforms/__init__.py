"""Ways of running code, behind the one interface of :mod:`virtgauge.platforms.base`."""
