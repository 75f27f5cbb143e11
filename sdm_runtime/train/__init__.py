"""Training of small byte-level models with sparse delta memory layers: ``sdm-train``.

Files, from data to report: data, sampler, entropy; model, optim, loop, capture; whole_files,
checkpoint, progress, evaluate, plots, report; session, run_text, run_recall; options, cli.
"""
