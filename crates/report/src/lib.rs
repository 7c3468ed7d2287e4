//! Stored results to HTML, Markdown, CSV, JSON. Never here: servers.
