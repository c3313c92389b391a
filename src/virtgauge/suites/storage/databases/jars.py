"""Servers that are Java's: their jars in the cache, and a Java that runs them."""

from __future__ import annotations

import dataclasses

from virtgauge.provision.databases.product import Product
from virtgauge.provision.java import JAVA_VERSION, find_java
from virtgauge.suites.storage.databases.base import Found, Missing
from virtgauge.suites.storage.databases.cached import find_cached


def find_jars(product: Product, title: str) -> Found | Missing:
    """The folder ``jars`` and the program ``java``; a Java outside of the system's folders has to be shared, too."""
    found, java = find_cached(product, title, jars=""), find_java()
    if isinstance(found, Missing):
        return found
    if java is None:
        return Missing(f"there is no Java {JAVA_VERSION}, on which {title} runs", "sudo virtgauge provision databases")
    home = java.parent.parent
    shares = found.shares if home.is_relative_to("/usr") else (*found.shares, home)
    return dataclasses.replace(found, paths={**found.paths, "java": java}, shares=shares)
