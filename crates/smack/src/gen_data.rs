//! The `gen-data` templates of Super Smack, done here instead of by its separate program.
//!
//! Format: `%[m-]n s` = m to n random letters, `%n` = row number from 1, `%d` = a random number, `%%` = `%`;
//! anything else is itself. Letters are `'a' + rand() % 25`, so never z. The generator is glibc's `rand()` without
//! a seed: each file comes out the same.

use workload::random::GlibcRandom;

/// A parsed template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Literal(u8),
    Letters { least: u32, most: u32 },
    RowNumber,
    Random,
}

impl Template {
    /// Parses the text after `-f`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        let mut fields = Vec::new();
        let mut bytes = text.bytes().peekable();
        while let Some(byte) = bytes.next() {
            if byte != b'%' {
                fields.push(Field::Literal(byte));
                continue;
            }
            let mut numbers: Vec<u32> = vec![0];
            let field = loop {
                match bytes.next() {
                    Some(b'%') => break Field::Literal(b'%'),
                    Some(b'n') => break Field::RowNumber,
                    Some(b'd') => break Field::Random,
                    Some(b's') => {
                        let most = numbers[numbers.len() - 1];
                        let least = numbers[0];
                        if numbers.len() > 2 || least > most || most == 0 {
                            return Err(format!("`{text}`: %s wants a width, as in %12s or %8-12s"));
                        }
                        break Field::Letters { least, most };
                    }
                    Some(b'-') => numbers.push(0),
                    Some(digit @ b'0'..=b'9') => {
                        let last = numbers.len() - 1;
                        numbers[last] =
                            numbers[last].saturating_mul(10).saturating_add(u32::from(digit - b'0'));
                        if numbers[last] > 65_535 {
                            return Err(format!("`{text}`: a width above 65535"));
                        }
                    }
                    _ => return Err(format!("`{text}`: after % stand n, d, %, or a width and s")),
                }
            };
            fields.push(field);
        }
        Ok(Template { fields })
    }

    /// Appends row `number` (from 1), without a line end.
    pub(crate) fn row(&self, number: u64, random: &mut GlibcRandom, out: &mut Vec<u8>) {
        for field in &self.fields {
            match field {
                Field::Literal(byte) => out.push(*byte),
                Field::RowNumber => out.extend_from_slice(number.to_string().as_bytes()),
                Field::Random => out.extend_from_slice(random.next().to_string().as_bytes()),
                Field::Letters { least, most } => {
                    // The upper bound is excluded where the two differ, as in the original.
                    let width = match most - least {
                        0 => *most,
                        spread => least + random.next() % spread,
                    };
                    out.extend((0..width).map(|_| b'a' + (random.next() % 25) as u8));
                }
            }
        }
    }

    /// A whole file of `rows` lines.
    pub(crate) fn file(&self, rows: u64) -> Vec<u8> {
        let mut random = GlibcRandom::new(1);
        let mut out = Vec::new();
        for number in 1..=rows {
            self.row(number, &mut random, &mut out);
            out.push(b'\n');
        }
        out
    }
}

/// Understands `gen-data -n ROWS -f TEMPLATE`; `None` for any other command.
///
/// # Errors
/// It is gen-data, and its arguments are wrong.
pub(crate) fn command(text: &str) -> Option<Result<(u64, Template), String>> {
    let mut words = text.split_whitespace();
    let program = words.next()?;
    if program.rsplit('/').next() != Some("gen-data") || text.contains(['|', '>', ';', '&', '`', '$']) {
        return None;
    }
    let (mut rows, mut template) = (None, None);
    while let Some(flag) = words.next() {
        let value = words.next();
        match (flag, value) {
            ("-n", Some(value)) => rows = value.parse::<u64>().ok(),
            ("-f", Some(value)) => template = Some(value.trim_matches(['\'', '"'])),
            _ => return Some(Err(format!("`{text}`: gen-data takes -n ROWS and -f TEMPLATE"))),
        }
    }
    Some(match (rows, template) {
        (Some(rows), Some(template)) => Template::parse(template).map(|template| (rows, template)),
        _ => Err(format!("`{text}`: gen-data takes -n ROWS and -f TEMPLATE")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures are those of the original's output, recomputed with glibc's rand().
    #[test]
    fn the_file_of_the_2005_study_comes_out_byte_for_byte() {
        let (rows, template) = command("gen-data -n 90000 -f %12-12s%n,%25-25s,%n,%d").unwrap().unwrap();
        assert_eq!(rows, 90_000);
        let file = template.file(rows);
        assert_eq!(file.len(), 5_421_337);
        let first = file.split(|b| *b == b'\n').next().unwrap();
        assert_eq!(first, b"ilcpsklryvmc1,pjnbpbwllsrehfmxrkecwitrs,1,2089018456");
    }

    #[test]
    fn other_commands_are_not_ours() {
        assert!(command("perl make.pl").is_none());
        assert!(command("gen-data -n 5 -f %n | sort").is_none());
        assert!(command("gen-data -n five -f %n").unwrap().is_err());
        assert!(Template::parse("%5q").is_err());
        assert!(Template::parse("%s").is_err());
    }
}
