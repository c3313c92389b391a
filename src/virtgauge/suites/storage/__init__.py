"""Storage of sensor data (van der Veen et al. 2012): databases on the host and in guests, at equal durability."""
