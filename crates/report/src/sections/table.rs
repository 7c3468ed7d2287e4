//! Tables of sections: cells of ready texts, and the figures that they tell for JSON and for the proof of a bundle.

use serde_json::{Map, Value, json};

use crate::text::number;

/// A table of ready texts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    /// Its name in JSON. Bundles were sealed with it: it does not change.
    pub(crate) id: &'static str,
    pub(crate) caption: String,
    pub(crate) heads: Vec<String>,
    /// Columns of words; those after them are numbers.
    pub(crate) words: usize,
    pub(crate) rows: Vec<Vec<Cell>>,
    /// What must be said about it.
    pub(crate) notes: Vec<String>,
}

impl Table {
    /// `{"of": caption, "rows": [...]}`; `None` where it tells no figure of its own.
    fn json(&self) -> Option<Value> {
        let rows: Vec<Value> = self.rows.iter().map(|row| row_json(row, self.words)).collect();
        let has_figures = self.rows.iter().flatten().any(|cell| !cell.figures.is_empty());
        has_figures.then(|| json!({"of": self.caption, "rows": rows}))
    }
}

/// Tables by their names: what a section is in JSON.
pub(super) fn json_of(tables: &[Table]) -> Map<String, Value> {
    let mut by_id: Map<String, Value> = Map::new();
    for table in tables {
        let Some(json) = table.json() else { continue };
        match by_id.get_mut(table.id) {
            Some(Value::Array(all)) => all.push(json),
            _ => drop(by_id.insert(table.id.to_owned(), Value::Array(vec![json]))),
        }
    }
    by_id
}

fn row_json(row: &[Cell], words: usize) -> Value {
    let words: Vec<&str> =
        row.iter().take(words).map(|cell| cell.text.as_str()).filter(|text| !text.is_empty()).collect();
    let mut map = Map::new();
    map.insert("of".to_owned(), words.join(", ").into());
    for cell in row {
        let figures = match cell.figures.as_slice() {
            [] => continue,
            [(_, value)] => value.clone(),
            several => several.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        };
        map.insert(cell.name.clone(), figures);
    }
    Value::Object(map)
}

/// A cell of a table: its text, and the figures in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// The name of its figures in JSON. Bundles were sealed with it: it does not change.
    name: String,
    /// One, or several by their names.
    figures: Vec<(&'static str, Value)>,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Cell {
    /// A number, or a dash where there is none.
    pub(super) fn number(name: &str, value: Option<f64>) -> Self {
        Self::written(name, value, number)
    }

    /// A figure as `write` has it, or a dash where there is none.
    pub(super) fn written(name: &str, value: Option<f64>, write: impl FnOnce(f64) -> String) -> Self {
        value
            .map_or_else(Self::dash, |value| Self::several(name, write(value), vec![("value", value.into())]))
    }

    /// A count.
    pub(super) fn count(name: &str, count: usize) -> Self {
        Self::several(name, count.to_string(), vec![("value", count.into())])
    }

    /// Figures that one text tells.
    pub(super) fn several(name: &str, text: String, figures: Vec<(&'static str, Value)>) -> Self {
        Self { text, name: name.to_owned(), figures }
    }

    /// Nothing to tell.
    pub(super) fn dash() -> Self {
        "–".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_figures_by_name_and_words_as_one_text() {
        let row = |of: &str| {
            let interval = vec![("ratio", 1.5.into()), ("low", 1.25.into()), ("high", 1.75.into())];
            vec![
                of.into(),
                Cell::number("tps", Some(1234.5)),
                Cell::several("change", "+50 %".to_owned(), interval),
                Cell::number("missing", None),
            ]
        };
        let told = Table {
            id: "cost",
            caption: "x".to_owned(),
            words: 1,
            rows: vec![row("a"), row("b")],
            ..Table::default()
        };
        let mute = Table { id: "published", rows: vec![vec!["word".into()]], ..Table::default() };
        let json = Value::Object(json_of(&[told.clone(), mute, told]));
        let change = json!({"ratio": 1.5, "low": 1.25, "high": 1.75});
        let table = json!({"of": "x", "rows": [{"of": "a", "tps": 1234.5, "change": change},
                                              {"of": "b", "tps": 1234.5, "change": change}]});
        assert_eq!(json, json!({"cost": [table, table]}));
    }
}
