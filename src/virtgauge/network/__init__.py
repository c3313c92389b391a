"""Networks made for guests: namespaces, links and switches, none of them joined to the machine's own."""
