//! Tables of text for terminals.

/// On which side of a column its cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// What a cell has beyond so many characters is left out: nobody reads a statement of a megabyte in a table.
const CELL_CHARS_MOST: usize = 2000;

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

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(shortened).collect());
    }

    /// Whether there is nothing but headings.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// Lines, headings first; each ends with a line feed.
    pub(crate) fn text(&self) -> String {
        let all = 0..self.aligns.len();
        self.rows.iter().map(|row| self.line(row, all.clone()) + "\n").collect()
    }

    /// As [`Table::text`] where that is not too wide. Else what the first column says stands above its rows, and a last
    /// cell that still finds no room below its own.
    pub(crate) fn text_within(&self, width: Option<usize>) -> String {
        let text = self.text();
        let fits = |line: &str| width.is_none_or(|width| line.chars().count() <= width);
        if self.rows.is_empty() || text.lines().all(fits) {
            return text;
        }
        let last = self.aligns.len() - 1;
        let mut text = String::new();
        let mut heading = None;
        for (at, row) in self.rows.iter().enumerate() {
            let first = row.first();
            // The first row is the heads of the columns: the one of the first has nothing below it.
            if at > 0 && first != heading {
                text.push_str(&format!("{}\n", first.map_or("", String::as_str)));
                heading = first;
            }
            let line = format!("  {}", self.line(row, 1..last + 1));
            if fits(&line) {
                text.push_str(&format!("{line}\n"));
                continue;
            }
            text.push_str(&format!("  {}\n", self.line(row, 1..last)));
            text.push_str(&format!("    {}\n", row.get(last).map_or("", String::as_str)));
        }
        text
    }

    /// Some cells of a row, each as wide as its column.
    fn line(&self, row: &[String], columns: std::ops::Range<usize>) -> String {
        let mut line = String::new();
        for column in columns.clone() {
            let Some(cell) = row.get(column) else { continue };
            let of_column = self.rows.iter().filter_map(|row| row.get(column));
            let width = of_column.map(|cell| cell.chars().count()).max().unwrap_or_default();
            let gap = if column == columns.start { "" } else { "  " };
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            line.extend(match self.aligns.get(column) {
                Some(Align::Right) => [gap, &padding, cell],
                _ => [gap, cell, &padding],
            });
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// A cell as it is shown.
fn shortened(mut cell: String) -> String {
    if let Some((at, _)) = cell.char_indices().nth(CELL_CHARS_MOST) {
        cell.truncate(at);
        cell.push('…');
    }
    cell
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
        assert_eq!(table.text_within(Some(14)), table.text());
    }

    #[test]
    fn a_cell_of_any_length_is_shown() {
        // Beyond what a width of the standard library's formats may be.
        let long = "ä".repeat(70_000);
        for align in [Align::Left, Align::Right] {
            let mut table = Table::new(&[("sql", align), ("n", Align::Right)]);
            table.row([long.clone(), "1".into()]);
            table.row(["SELECT 1".into(), "2".into()]);
            let text = table.text();
            assert!(text.lines().all(|line| line.chars().count() == CELL_CHARS_MOST + 1 + 3), "{text}");
            assert!(text.contains("ä…  1\n"), "{text}");
        }
    }

    #[test]
    fn what_is_too_wide_stands_above_or_below() {
        let mut table = Table::new(&[("cell", Align::Left), ("tps", Align::Right), ("marks", Align::Left)]);
        table.row(["mariadb on oltp".into(), "5".into(), String::new()]);
        table.row(["mariadb on oltp".into(), "1,234".into(), "stalls in 1 of 5 runs".into()]);
        let wanted = "    tps  marks\nmariadb on oltp\n      5\n  1,234\n    stalls in 1 of 5 runs\n";
        assert_eq!(table.text_within(Some(26)), wanted);
    }
}
