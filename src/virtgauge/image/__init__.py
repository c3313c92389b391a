"""One small guest that boots anywhere: kernel, agent and drivers as a disk image or CD."""
