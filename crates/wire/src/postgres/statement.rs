//! A prepared statement: the bytes of Bind, Execute and Sync, made once and patched for each execution.

use std::io::Write;

use super::frontend;
use crate::Error;
use crate::value::{ParamType, Value};

/// Type oids of pg_type: int4, int8, float8; 0 lets the server infer the type.
fn oid(param: ParamType) -> u32 {
    match param {
        ParamType::Int => 23,
        ParamType::BigInt => 20,
        ParamType::Double => 701,
        ParamType::Text => 0,
    }
}

/// A prepared statement of one connection.
#[derive(Debug)]
pub struct Statement {
    name: String,
    params: Box<[ParamType]>,
    has_result_set: bool,
    /// Bind, Execute, Sync with the values of the last execution.
    template: Vec<u8>,
    /// Where the first value's length stands in `template`.
    values_at: usize,
}

/// Bind's length stands after its tag.
const BIND_LENGTH_AT: usize = 1;

impl Statement {
    /// Appends Parse, Describe and Sync to `out`.
    pub(super) fn prepare(out: &mut Vec<u8>, name: &str, sql: &str, params: &[ParamType]) {
        frontend::parse(out, name, sql, params.iter().map(|&param| oid(param)));
        frontend::describe_statement(out, name);
        frontend::sync(out);
    }

    /// The statement that the server has accepted under `name`. Results come as text.
    pub(super) fn new(name: String, params: &[ParamType], has_result_set: bool) -> Statement {
        let mut template = vec![b'B', 0, 0, 0, 0, 0];
        template.extend_from_slice(name.as_bytes());
        template.push(0);
        let count = (params.len() as u16).to_be_bytes();
        template.extend_from_slice(&count);
        for param in params {
            template.extend_from_slice(&u16::from(*param != ParamType::Text).to_be_bytes());
        }
        template.extend_from_slice(&count);
        let values_at = template.len();
        let mut statement = Statement { name, params: params.into(), has_result_set, template, values_at };
        // All NULL to begin with: whatever the first values are, the bytes are consistent.
        statement.rebuild(|_| Ok(Encoded::Null)).unwrap_or_default();
        statement
    }

    /// The name on the server.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it returns rows.
    pub fn has_result_set(&self) -> bool {
        self.has_result_set
    }

    /// The bytes that execute it with `values`. Patched in place where each value is as long as the last time,
    /// which is always so for numbers; else rebuilt in the same memory.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a wrong number of values or one that its declared type cannot hold; nothing
    /// has been sent then.
    #[inline]
    pub(super) fn bind(&mut self, values: &[Value<'_>]) -> Result<&[u8], Error> {
        if values.len() != self.params.len() {
            return Err(Error::Unsupported(format!(
                "{} values given for {} parameters",
                values.len(),
                self.params.len()
            )));
        }
        let mut at = self.values_at;
        for (index, value) in values.iter().enumerate() {
            let encoded = Encoded::new(index, self.params[index], *value)?;
            if self.template[at..at + 4] != encoded.length().to_be_bytes() {
                let params = std::mem::take(&mut self.params);
                let rebuilt = self.rebuild_with(&params, values);
                self.params = params;
                rebuilt?;
                return Ok(&self.template);
            }
            at += 4;
            let bytes = encoded.bytes();
            self.template[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        Ok(&self.template)
    }

    fn rebuild_with(&mut self, params: &[ParamType], values: &[Value<'_>]) -> Result<(), Error> {
        // All are checked first: a value that is refused must leave the template whole.
        for (index, (param, value)) in params.iter().zip(values).enumerate() {
            Encoded::new(index, *param, *value)?;
        }
        self.template.truncate(self.values_at);
        for (index, (param, value)) in params.iter().zip(values).enumerate() {
            let encoded = Encoded::new(index, *param, *value)?;
            self.template.extend_from_slice(&encoded.length().to_be_bytes());
            self.template.extend_from_slice(encoded.bytes());
        }
        Ok(())
    }
}
