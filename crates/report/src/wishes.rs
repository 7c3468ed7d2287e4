//! What a study's `[report]` table asks for. Read from the study file as it is stored, so that any plimsoll can show
//! what any study wanted.

/// The `[report]` table of a study.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// Sections beyond those that the axes ask for.
    pub(crate) sections: Vec<String>,
    /// Sets of published figures to show beside ours.
    pub(crate) published: Vec<String>,
    /// The lowest level of the mean that is the headline.
    pub(crate) mean_from: Option<u32>,
}

impl Wishes {
    /// Of a study file; none where it has no such table or cannot be read (the lab has checked it).
    pub(crate) fn of(file_text: &str) -> Wishes {
        let Some(wishes) = table_of(file_text, "report") else { return Wishes::default() };
        let words = |key: &str| wishes.get(key).map(words).unwrap_or_default();
        let mean_from = wishes.get("mean_from").and_then(toml::Value::as_integer);
        Wishes {
            sections: words("sections"),
            published: words("published"),
            mean_from: mean_from.and_then(|level| u32::try_from(level).ok()),
        }
    }
}

/// A table of a study file; `None` where it has none or cannot be read.
pub(crate) fn table_of(file_text: &str, name: &str) -> Option<toml::Table> {
    file_text.parse::<toml::Table>().ok()?.remove(name)?.as_table().cloned()
}

/// One text, or several.
pub(crate) fn words(value: &toml::Value) -> Vec<String> {
    match value {
        toml::Value::String(one) => vec![one.clone()],
        toml::Value::Array(all) => all.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read_and_optional() {
        let text = "title = \"t\"\n[report]\nsections = [\"cost\", \"levels\"]\npublished = \"maxia-2009\"\nmean_from = 5";
        let wishes = Wishes::of(text);
        assert_eq!(wishes.sections, ["cost", "levels"]);
        assert_eq!((wishes.published, wishes.mean_from), (vec!["maxia-2009".to_owned()], Some(5)));
        assert_eq!(Wishes::of("title = \"t\""), Wishes::default());
        assert_eq!(Wishes::of("not [toml"), Wishes::default());
    }
}
