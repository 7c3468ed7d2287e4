//! Tables of text for terminals.

/// On which side of a column its cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of text in columns as wide as their widest cell.
#[derive(Debug, Default)]
pub(crate) struct Table {
    aligns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a line of headings.
    pub(crate) fn new(columns: &[(&str, Align)]) -> Table {
        Table {
            aligns: columns.iter().map(|(_, align)| *align).collect(),
            rows: vec![columns.iter().map(|(name, _)| (*name).to_owned()).collect()],
        }
    }

    /// One more row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether there is nothing but headings.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// Lines, headings first; each ends with a line feed.
    pub(crate) fn text(&self) -> String {
        let widths: Vec<usize> = (0..self.aligns.len())
            .map(|column| {
                self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
            })
            .map(Option::unwrap_or_default)
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths.get(column).copied().unwrap_or_default();
                let gap = if column == 0 { "" } else { "  " };
                match self.aligns.get(column) {
                    Some(Align::Right) => line.push_str(&format!("{gap}{cell:>width$}")),
                    _ => line.push_str(&format!("{gap}{cell:<width$}")),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("tps", Align::Right)]);
        assert!(table.is_empty());
        table.row(["mariadb".into(), "5".into()]);
        table.row(["pg".into(), "1,234".into()]);
        assert_eq!(table.text(), "name       tps\nmariadb      5\npg       1,234\n");
    }
}
