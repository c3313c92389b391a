"""Whether requirements are met, and which platform is to be preferred."""
