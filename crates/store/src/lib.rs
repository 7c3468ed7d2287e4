//! The results file; the only home of stored formats; versioned. Never here: how a figure was measured or is shown.
