//! Study file -> plan -> provision, load, run, record, resume; the only room that sees all others. Never here: terminal output.
