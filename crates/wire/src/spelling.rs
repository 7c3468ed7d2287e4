//! What somebody meant who mistyped a name: every room that reads names asks here.

/// The name of `known` that a mistyped one most likely meant, whatever its case; `None` when nothing is near.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    known
        .into_iter()
        // Edits: insert, delete, replace, swap of neighbours.
        .map(|name| (strsim::osa_distance(&typed, &name.to_lowercase()), name))
        .filter(|&(far, name)| far <= 1 + name.len().min(typed.len()) / 4)
        .min_by_key(|&(far, _)| far)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_understood_and_another_word_is_not() {
        let known = ["oltp_read_only", "oltp_read_write", "tpcc"];
        assert_eq!(nearest("oltp_read_onyl", known), Some("oltp_read_only"));
        assert_eq!(nearest("OLTP_READ_WRIT", known), Some("oltp_read_write"));
        assert_eq!(nearest("linkbench", known), None);
        assert_eq!(nearest("", known), None);
    }
}
