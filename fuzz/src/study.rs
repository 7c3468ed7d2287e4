//! Study files: everything that `plimsoll run` does with a text before it looks at the machine.

use std::path::Path;

/// A text is a study, or problems that can be shown in it.
pub fn study_files(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    std::hint::black_box((wire::mask::value(&text), wire::mask::prose(&text)));
    match lab::study::parse(Path::new("fuzzed.toml"), &text) {
        Ok(study) => {
            for quick in [false, true] {
                std::hint::black_box(lab::plan::fingerprint(&study.body(quick), quick));
            }
        }
        Err(error) => {
            assert!(!error.problems.is_empty());
            // Drawing takes far longer than reading, and each problem is drawn alike.
            if error.problems.len() <= 3 {
                std::hint::black_box(error.render(false));
            }
        }
    }
}
