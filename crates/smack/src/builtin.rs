//! The two smacks of the 2005 study, written anew with the same behaviour.

/// Name and text of each.
pub const ALL: [(&str, &str); 2] = [
    ("select-key", include_str!("../smacks/select-key.smack")),
    ("update-select", include_str!("../smacks/update-select.smack")),
];

/// The text of a built-in smack; `select-key` and `select-key.smack` are the same.
pub fn find(name: &str) -> Option<&'static str> {
    let name = name.strip_suffix(".smack").unwrap_or(name);
    ALL.iter().find(|(n, _)| *n == name).map(|(_, source)| *source)
}
