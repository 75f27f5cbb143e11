"""Training of small byte-level models with sparse delta memory layers: ``sdm-train``.

Rooms, each standing on those before it: data, trainer, checkpoints, tasks, report, run.
"""
