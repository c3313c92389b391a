"""Databases that virtgauge's cache holds."""

from __future__ import annotations

from virtgauge.provision.databases.product import Product
from virtgauge.suites.storage.databases.base import Found, Missing


def find_cached(product: Product, what: str, **places: str) -> Found | Missing:
    """Look for a product in the cache.

    Args:
        product: it.
        what: it is called, for people.
        places: of :attr:`Found.paths`, within the product's folder.
    """
    kept = product.find()
    if kept is None:
        return Missing(f"{what} is not in the cache", "virtgauge provision databases")
    folder, version = kept
    return Found(version, "virtgauge's cache", {name: folder / place for name, place in places.items()}, (folder,))
