//! What becomes of the packets of an answer: rows shown, definitions kept, everything kept.

use super::framing::malformed;
use super::row::{Column, binary_cells, text_cells};
use crate::error::Error;
use crate::limits::{self, Budget};
use crate::value::{Cell, Done, ResultSet, Row};

/// Who looks at the packets of an answer.
pub(super) trait Reading {
    fn on_head(&mut self, _columns: u32, _has_definitions: bool) -> Result<(), Error> {
        Ok(())
    }
    fn on_column(&mut self, _payload: &[u8]) -> Result<(), Error> {
        Ok(())
    }
    fn on_row(&mut self, _payload: &[u8]) -> Result<(), Error> {
        Ok(())
    }
    fn on_statement_end(&mut self, _done: Done) -> Result<(), Error> {
        Ok(())
    }
}

/// Shows the rows of the text protocol.
pub(super) struct TextRows<'a> {
    pub(super) columns: usize,
    pub(super) cells: &'a mut Vec<Option<Cell>>,
    pub(super) on_row: &'a mut dyn FnMut(&Row<'_>),
}

impl Reading for TextRows<'_> {
    fn on_head(&mut self, columns: u32, _has_definitions: bool) -> Result<(), Error> {
        self.columns = columns as usize;
        Ok(())
    }

    fn on_row(&mut self, payload: &[u8]) -> Result<(), Error> {
        text_cells(payload, self.columns, self.cells)?;
        (self.on_row)(&Row::new(payload, self.cells));
        Ok(())
    }
}

/// Shows the rows of a prepared statement, as text.
pub(super) struct BinaryRows<'a> {
    pub(super) columns: &'a mut Vec<Column>,
    pub(super) cells: &'a mut Vec<Option<Cell>>,
    pub(super) text: &'a mut Vec<u8>,
    pub(super) on_row: &'a mut dyn FnMut(&Row<'_>),
}

impl Reading for BinaryRows<'_> {
    fn on_head(&mut self, columns: u32, has_definitions: bool) -> Result<(), Error> {
        if has_definitions {
            self.columns.clear();
        } else if self.columns.len() != columns as usize {
            return malformed(format!(
                "{columns} columns without definitions, where the last ones were {}",
                self.columns.len()
            ));
        }
        Ok(())
    }

    fn on_column(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.columns.push(Column::parse(payload)?);
        Ok(())
    }

    fn on_row(&mut self, payload: &[u8]) -> Result<(), Error> {
        binary_cells(payload, self.columns, self.text, self.cells)?;
        (self.on_row)(&Row::new(self.text, self.cells));
        Ok(())
    }
}

/// Skips rows but keeps column definitions.
pub(super) struct Definitions<'a>(pub(super) &'a mut Vec<Column>);

impl Reading for Definitions<'_> {
    fn on_head(&mut self, _columns: u32, _has_definitions: bool) -> Result<(), Error> {
        self.0.clear();
        Ok(())
    }

    fn on_column(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.0.push(Column::parse(payload)?);
        Ok(())
    }
}

/// Keeps everything.
#[derive(Default)]
pub(super) struct Sets {
    current: ResultSet,
    pub(super) sets: Vec<ResultSet>,
    cells: Vec<Option<Cell>>,
    budget: Budget,
    /// There is no more room: what has been kept is given up.
    is_over: bool,
}

impl Sets {
    fn pay(&mut self, bytes: usize) -> Result<(), Error> {
        self.budget.take(bytes).inspect_err(|_| {
            self.is_over = true;
            (self.current, self.sets) = (ResultSet::default(), Vec::new());
        })
    }
}

impl Reading for Sets {
    fn on_column(&mut self, payload: &[u8]) -> Result<(), Error> {
        let name = Column::parse(payload)?.name;
        self.pay(name.len() + 2 * size_of::<String>())?;
        self.current.columns.push(name);
        Ok(())
    }

    fn on_row(&mut self, payload: &[u8]) -> Result<(), Error> {
        text_cells(payload, self.current.columns.len(), &mut self.cells)?;
        let row = Row::new(payload, &self.cells).to_owned_row();
        self.pay(limits::kept_bytes(&row))?;
        self.current.rows.push(row);
        Ok(())
    }

    fn on_statement_end(&mut self, done: Done) -> Result<(), Error> {
        if self.is_over {
            return Ok(());
        }
        self.pay(2 * size_of::<ResultSet>())?;
        self.current.done = done;
        self.sets.push(std::mem::take(&mut self.current));
        Ok(())
    }
}
