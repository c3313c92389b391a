"""The papers' conclusions beside what a run measured, all in one place: what a plan named ``paper:…`` is for."""
