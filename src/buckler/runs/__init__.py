"""A specification -> files, and back.

- ``spec.RunSpec``: everything that a run's evidence is a function of; TOML in and out, content hash.
- ``opening.open_run(settings, where)``: settings -> the specification, an executor that runs its classifier, its data.
- ``sample.sample(spec, classifier, dataset, folder)``: draws what is missing; the same call again finishes the rest.
- ``certify.certify_evidence(evidence, alpha=, method=)``: the certificates of a run; ``own.method_named(name)``:
  a method by name, the user's own included.
- ``sweep.sweep_runs(folders, grid, out)``: a ``grid.Grid`` of settings from the evidence of several runs.
- ``interop.read_log(path)`` and ``write_log``: the field's usual log of radii; ``recovery``: the votes behind one, and
  which alpha, n and sigma it fits; ``imported.import_log(path, out=)``: both, in words and as evidence.
- ``executor``: runs the blocks of a run in this process; ``ray``: on a Ray cluster (the only module with ray).
- ``decide.decide(spec, target, classifier, dataset, out)``: draws until the radii of a ``target.Target`` are decided,
  and keeps what is; the same call goes on.
- ``identity.identify(spec, executor, dataset)``: what a run is drawn from, a classifier by its answers; ``admission``:
  whether it may go on with that; ``provenance.who_drew(evidence)``: which classifiers and environments did.
- ``plan.plan(inputs=, num_classes=, n=, rate=)``: what a run costs, before it is begun.
- ``store``: evidence and certificates as Parquet (the only place that imports pyarrow).
  ``store.evidence.open_evidence(folder)`` reads what ``sample`` wrote.
- ``results.read_result(path, options)``: a run or a file of certificates, certified by every method asked for; and
  ``results.with_data(result, data)``: with pictures and labels, compared with what was certified.

May import: the root modules, ``noise``, ``sampling``, ``certify`` and, for ``refute``, ``evaluate``.
"""
