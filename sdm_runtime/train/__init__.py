"""Training of small byte-level models with sparse delta memory layers: ``sdm-train``.

Files, from data to report: shown, free_memory; config, launch, memory; data, sampler, entropy;
repeatable, model, optim, loop, capture; checkpoint_checks, checkpoint, progress, evaluate, plots,
report; interrupts, output, session, run_text, run_recall; options, cli.
"""
