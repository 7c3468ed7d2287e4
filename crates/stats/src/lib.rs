//! Pure functions on slices: confidence intervals, verdicts, USL, change points, steady state. Never here: IO of any kind.
