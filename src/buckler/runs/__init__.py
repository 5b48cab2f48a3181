"""A specification -> the evidence of a run (votes and scores on disk) -> certificates.

- ``spec.RunSpec``: all settings that the evidence of a run depends on, as TOML and with a hash.
- ``open_run.open_run(settings, where)``: settings -> the specification, an executor that runs its classifier, its data.
- ``sample.sample(spec, classifier, dataset, folder)``: draws what is missing; the same call again finishes the rest.
- ``certify.certify_evidence(evidence, alpha=, method=)``: the certificates of a run; ``certify.method_named(name)``:
  a method by name, the user's own included.
- ``sweep.sweep_runs(folders, grid, out)``: a ``Grid`` of settings from the evidence of several runs.
- ``logs``: the usual log of radii, read and written; ``import_log(path, out=)``: the settings that a log fits, and the
  votes behind it as evidence.
- ``executor``: runs the blocks of a run in this process or on a Ray cluster (the only module with ray).
- ``decide.decide(spec, target, classifier, dataset, out)``: draws until the radii of a ``Target`` are certified or
  given up for each input, and keeps the results; the same call goes on.
- ``routing.parts(settings, out, levels)``: the runs that settings name, one or those of a composition;
  ``routing.certify_composition(folder, alpha=)``: its certificates.
- ``identity.identify(spec, executor, dataset)``: the identity of the model (answers, weights, environment) and of the
  data, compared before a run goes on.
- ``plan.plan(inputs=, num_classes=, n=, rate=)``: the cost of a run before it is begun.
- ``store``: evidence and certificates on disk (the only package that imports pyarrow);
  ``store.evidence.open_evidence(folder)`` reads what ``sample`` wrote.
- ``results.read_result(path, methods)``: a run or a file of certificates, certified by every method asked for; and
  ``results.with_data(result, data)``: with pictures and labels, compared with what was certified.

May import: the root modules, ``noise``, ``sampling``, ``certify`` and, for ``refute``, ``evaluate``.
"""
