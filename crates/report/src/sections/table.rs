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

/// Columns that name a row, where not all columns of words do: reasons are worded anew.
const FEWER_KEYS: [(&str, usize); 1] = [("gates", 1)];

impl Table {
    /// `{"of": caption, "rows": [...]}`; `None` where it tells no figure of its own.
    fn json(&self, with_earlier: bool) -> Option<Value> {
        let keys = FEWER_KEYS.iter().find(|(id, _)| *id == self.id).map_or(self.words, |(_, keys)| *keys);
        let rows: Vec<Value> =
            self.rows.iter().map(|row| row_json(row, (self.words, keys), with_earlier)).collect();
        let has_figures = self.rows.iter().flatten().any(|cell| !cell.figures.is_empty());
        has_figures.then(|| json!({"of": self.caption, "rows": rows}))
    }
}

/// Heads of columns, parted by ` | `.
pub(super) fn heads(text: &str) -> Vec<String> {
    text.split(" | ").map(str::to_owned).collect()
}

/// Tables by their names: what a section is in JSON.
pub(super) fn json_of(tables: &[Table], with_earlier: bool) -> Map<String, Value> {
    let mut by_id: Map<String, Value> = Map::new();
    for table in tables {
        let Some(json) = table.json(with_earlier) else { continue };
        match by_id.get_mut(table.id) {
            Some(Value::Array(all)) => all.push(json),
            _ => drop(by_id.insert(table.id.to_owned(), Value::Array(vec![json]))),
        }
    }
    by_id
}

/// Its words, what names it among the others (which bundles are sealed with), and its figures.
fn row_json(row: &[Cell], (words, keys): (usize, usize), with_earlier: bool) -> Value {
    let text = |columns: usize| -> Vec<&str> {
        row.iter().take(columns).map(|cell| cell.text.as_str()).filter(|text| !text.is_empty()).collect()
    };
    let mut map = Map::new();
    map.insert("of".to_owned(), text(words).join(", ").into());
    let level = row.iter().find(|cell| cell.name == "sessions").map(|cell| cell.text.as_str());
    let key: Vec<&str> = text(keys).into_iter().chain(level).collect();
    map.insert("row".to_owned(), key.join(", ").into());
    for cell in row {
        if let Some((name, value)) = cell.earlier.as_ref().filter(|_| with_earlier) {
            map.insert((*name).to_owned(), value.clone());
        }
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
    /// Bundles were sealed with a figure of this name, which is another one than what stands here now.
    earlier: Option<(&'static str, Value)>,
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
        Self { text, name: name.to_owned(), figures, earlier: None }
    }

    /// With the figure that bundles were sealed with under another name, as it was defined then.
    pub(super) fn instead_of(self, name: &'static str, value: Option<f64>) -> Self {
        Self { earlier: value.map(|value| (name, value.into())), ..self }
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
        let json = Value::Object(json_of(&[told.clone(), mute, told], false));
        let change = json!({"ratio": 1.5, "low": 1.25, "high": 1.75});
        let table = json!({"of": "x", "rows": [{"of": "a", "row": "a", "tps": 1234.5, "change": change},
                                              {"of": "b", "row": "b", "tps": 1234.5, "change": change}]});
        assert_eq!(json, json!({"cost": [table, table]}));
    }

    #[test]
    fn rows_are_named_by_their_first_words_and_their_level() {
        let row: Vec<Cell> = vec![
            "errors".into(),
            "because of this".into(),
            Cell::count("sessions", 8),
            Cell::number("new", Some(2.0)).instead_of("old", Some(1.0)),
        ];
        let of = |with_earlier| row_json(&row, (2, 1), with_earlier);
        let expected =
            json!({"of": "errors, because of this", "row": "errors, 8", "sessions": 8, "new": 2.0});
        assert_eq!(of(false), expected);
        assert_eq!(of(true)["old"], 1.0);
    }
}
