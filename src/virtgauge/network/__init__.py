"""Networks made for guests: namespaces, links and switches, none of them joined to the machine's own.

What the kernel refuses, or has not, is a NetworkError where something is made or set, and the kernel's own error where
it is read or removed, unless a function says otherwise.
"""
