"""Networks made for guests: namespaces, links and switches, none of them joined to the machine's own.

What the kernel refuses, or has not, is a NetworkError wherever a function does not say otherwise.
"""
