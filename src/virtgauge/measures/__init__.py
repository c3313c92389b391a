"""What can be required, ranked, compared and exported: figures of trials by name, with unit and direction."""
