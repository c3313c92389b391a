"""Servers that are Java's: their jars in the cache, and a Java that runs them."""

from __future__ import annotations

from virtgauge.provision.databases.product import Product
from virtgauge.provision.java import JAVA_VERSION, find_java
from virtgauge.suites.storage.databases.base import Found, Missing


def find_jars(product: Product, title: str) -> Found | Missing:
    """The folder ``jars`` and the program ``java``; a Java outside of the system's folders has to be shared, too."""
    kept, java = product.find(), find_java()
    if kept is None:
        return Missing(f"{title} is not in the cache", "virtgauge provision databases")
    if java is None:
        return Missing(f"there is no Java {JAVA_VERSION}, on which {title} runs", "sudo virtgauge provision databases")
    folder, version = kept
    home = java.parent.parent
    shares = (folder,) if home.is_relative_to("/usr") else (folder, home)
    return Found(version, "virtgauge's cache", {"jars": folder, "java": java}, shares)
