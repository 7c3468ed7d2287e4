//! Transactions as they were drawn: statements with their parameters, and pauses, in a list.

use std::ops::Range;

use wire::Value;

/// A parameter that was drawn.
#[derive(Debug, Clone, Copy)]
enum Parameter {
    Int(i64),
    Double(f64),
    Text { start: u32, length: u32 },
}

/// A statement that was drawn: its class, its table, its parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DrawnStatement {
    pub(super) class: u32,
    pub(super) table: u32,
    first: u32,
    count: u32,
}

/// A part of a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Statement(DrawnStatement),
    /// Nothing is sent for so long.
    Pause {
        us: u64,
    },
}

/// Where a transaction begins and ends among the steps.
#[derive(Debug, Clone, Copy, Default)]
struct Transaction {
    begin: usize,
    end: usize,
    class: Option<usize>,
}

/// Most statements have so many parameters at most: every value that could be is written to the stack.
const VALUES_FEW: usize = 4;
/// Statements with more parameters than this pay for an allocation.
const VALUES_INLINE: usize = 24;

/// So many steps are drawn at once where transactions are small: drawing runs through code and memory that nothing else
/// of a statement needs, and that has left the caches by the next time.
const STEPS_AHEAD: usize = 16;

/// Transactions that were drawn. Their buffers are kept.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// Of all of them.
    steps: Vec<Step>,
    transactions: Vec<Transaction>,
    /// How many of them were run.
    run: usize,
    /// The one that is to run.
    present: Transaction,
    parameters: Vec<Parameter>,
    /// Parameters that belong to statements already.
    taken: usize,
    text: Vec<u8>,
    /// Of the transaction that is being drawn.
    class: Option<usize>,
    /// Why the last of the transactions could not be drawn.
    mistake: Option<String>,
}

/// For who draws.
impl Program {
    /// Adds a whole number to the parameters of the next statement.
    #[inline]
    pub(crate) fn int(&mut self, number: u64) {
        self.signed(number as i64);
    }

    /// As [`Program::int`].
    #[inline]
    pub(crate) fn signed(&mut self, number: i64) {
        self.parameters.push(Parameter::Int(number));
    }

    /// Adds a double to the parameters of the next statement.
    pub(crate) fn double(&mut self, number: f64) {
        self.parameters.push(Parameter::Double(number));
    }

    /// Adds what `write` appends to the parameters of the next statement.
    #[inline]
    pub(crate) fn text(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        write(&mut self.text);
        let length = (self.text.len() - start) as u32;
        self.parameters.push(Parameter::Text { start: start as u32, length });
    }

    /// Ends a statement: of this class, on this table, with the parameters since the last one.
    #[inline]
    pub(crate) fn push(&mut self, class: usize, table: usize) {
        let (first, count) = (self.taken as u32, (self.parameters.len() - self.taken) as u32);
        self.taken = self.parameters.len();
        let drawn = DrawnStatement { class: class as u32, table: table as u32, first, count };
        self.steps.push(Step::Statement(drawn));
    }

    /// Adds a pause.
    pub(crate) fn pause(&mut self, us: u64) {
        self.steps.push(Step::Pause { us });
    }

    /// Adds a pause after each step of the transaction that is being drawn.
    pub(crate) fn pause_after_each(&mut self, mut draw_us: impl FnMut() -> u64) {
        for step in self.steps.split_off(self.drawn()) {
            self.steps.push(step);
            self.pause(draw_us());
        }
    }

    /// The transaction's class, an index into those of the workload.
    pub(crate) fn class(&mut self, class: usize) {
        self.class = Some(class);
    }

    /// The transaction cannot be drawn: running it ends the step.
    pub(crate) fn mistake(&mut self, what: String) {
        self.mistake = Some(what);
    }
}

/// For who runs.
impl Program {
    /// Makes the next transaction the present one. `draw` writes one more.
    #[inline]
    pub(super) fn advance(&mut self, draw: impl FnMut(&mut Program)) {
        if self.run == self.transactions.len() {
            self.draw_ahead(draw);
        }
        self.present = self.transactions[self.run];
        self.run += 1;
    }

    #[inline(never)]
    fn draw_ahead(&mut self, mut draw: impl FnMut(&mut Program)) {
        self.clear();
        loop {
            let begin = self.drawn();
            draw(self);
            let end = self.steps.len();
            self.transactions.push(Transaction { begin, end, class: self.class.take() });
            let steps = end - begin;
            if steps == 0 || end + steps > STEPS_AHEAD || self.mistake.is_some() {
                break;
            }
        }
    }

    fn clear(&mut self) {
        self.steps.clear();
        self.transactions.clear();
        self.run = 0;
        self.parameters.clear();
        self.taken = 0;
        self.text.clear();
        self.mistake = None;
    }

    /// Steps of the transactions that are complete.
    fn drawn(&self) -> usize {
        self.transactions.last().map_or(0, |last| last.end)
    }

    /// The steps of the present transaction, for [`Program::step`].
    #[inline]
    pub(super) fn present(&self) -> Range<usize> {
        self.present.begin..self.present.end
    }

    #[inline]
    pub(super) fn step(&self, index: usize) -> Step {
        self.steps[index]
    }

    /// See [`Program::class`].
    #[inline]
    pub(super) fn present_class(&self) -> Option<usize> {
        self.present.class
    }

    /// Why the present transaction cannot be run.
    #[inline]
    pub(super) fn present_mistake(&self) -> Option<&str> {
        // None is drawn after a mistake.
        self.mistake.as_deref().filter(|_| self.run == self.transactions.len())
    }

    /// Lends the parameters of a statement.
    #[inline(always)]
    pub(super) fn with_values<R>(
        &self,
        statement: DrawnStatement,
        mut lend: impl FnMut(&[Value<'_>]) -> R,
    ) -> R {
        match statement.count as usize {
            0..=VALUES_FEW => self.lend_array::<VALUES_FEW, R>(statement, lend),
            _ => self.with_many_values(statement, &mut lend),
        }
    }

    /// Out of line, because of its frame.
    #[inline(never)]
    fn with_many_values<R>(&self, statement: DrawnStatement, lend: &mut dyn FnMut(&[Value<'_>]) -> R) -> R {
        let count = statement.count as usize;
        if count <= VALUES_INLINE {
            return self.lend_array::<VALUES_INLINE, R>(statement, lend);
        }
        let values: Vec<_> = (0..count).map(|index| self.value(statement, index)).collect();
        lend(&values)
    }

    #[inline(always)]
    fn lend_array<const N: usize, R>(
        &self,
        statement: DrawnStatement,
        lend: impl FnOnce(&[Value<'_>]) -> R,
    ) -> R {
        let mut values = [Value::Null; N];
        let values = &mut values[..statement.count as usize];
        for (index, value) in values.iter_mut().enumerate() {
            *value = self.value(statement, index);
        }
        lend(values)
    }

    #[inline]
    fn value(&self, statement: DrawnStatement, index: usize) -> Value<'_> {
        match self.parameters[statement.first as usize + index] {
            Parameter::Int(number) => Value::Int(number),
            Parameter::Double(number) => Value::Double(number),
            Parameter::Text { start, length } => {
                Value::Bytes(&self.text[start as usize..(start + length) as usize])
            }
        }
    }
}

#[cfg(test)]
impl Program {
    /// All steps that were drawn.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the present transaction consists of.
    fn shown(program: &Program) -> Vec<String> {
        let step = |index| match program.step(index) {
            Step::Pause { us } => format!("pause {us}"),
            Step::Statement(statement) => program.with_values(statement, |values| {
                format!("{} {} {values:?}", statement.class, statement.table)
            }),
        };
        program.present().map(step).collect()
    }

    #[test]
    fn small_transactions_are_drawn_ahead_and_keep_their_parameters() {
        let (mut program, mut drawn) = (Program::default(), 0);
        for run in 0..100 {
            program.advance(|program| {
                program.signed(-drawn);
                program.text(|out| out.extend_from_slice(drawn.to_string().as_bytes()));
                program.push(1, 2);
                program.class(drawn as usize);
                drawn += 1;
            });
            let text = run.to_string();
            let values = [Value::Int(-run), Value::Bytes(text.as_bytes())];
            assert_eq!(shown(&program), [format!("1 2 {values:?}")]);
            assert_eq!(program.present_class(), Some(run as usize));
            assert!((run + 1..=run + STEPS_AHEAD as i64).contains(&drawn), "{drawn} after {run}");
        }
    }

    #[test]
    fn many_parameters_are_lent_whole() {
        for count in [0, 1, VALUES_FEW, VALUES_FEW + 1, VALUES_INLINE, VALUES_INLINE + 1, 1000] {
            let mut program = Program::default();
            program.advance(|program| {
                (0..count as u64).for_each(|number| program.int(number));
                program.push(0, 0);
            });
            let wanted: Vec<Value<'_>> = (0..count as i64).map(Value::Int).collect();
            assert_eq!(shown(&program), [format!("0 0 {wanted:?}")]);
        }
    }

    #[test]
    fn pauses_follow_the_steps_of_one_transaction() {
        let mut program = Program::default();
        for _ in 0..2 {
            program.advance(|program| {
                program.push(0, 0);
                program.push(1, 0);
                program.pause_after_each(|| 5);
            });
            assert_eq!(shown(&program), ["0 0 []", "pause 5", "1 0 []", "pause 5"]);
        }
    }

    #[test]
    fn a_mistake_is_of_the_transaction_that_could_not_be_drawn() {
        let (mut program, mut drawn) = (Program::default(), 0);
        for run in 0..5 {
            program.advance(|program| {
                program.push(0, 0);
                drawn += 1;
                if drawn == 4 {
                    program.mistake("division by zero".to_owned());
                }
            });
            assert_eq!(program.present_mistake().is_some(), run == 3, "{run}");
        }
    }
}
