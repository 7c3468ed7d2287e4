//! One self-contained page: style, scripts and data are in it, and its policy forbids it to load anything.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};
use sha2::{Digest, Sha256};

use crate::charts::charts;
use crate::error::Error;
use crate::model::Report;
use crate::page;

const TEMPLATE: &str = include_str!("../assets/report.html.jinja");
/// The style of reports, light and dark.
pub const CSS: &str = include_str!("../assets/report.css");
const SCRIPT: &str = include_str!("../assets/report.js");
const ECHARTS: &str = include_str!("../assets/echarts.custom.min.js");

/// What draws the charts of a page that has [`history::charts`](crate::history::charts) in its element `data`.
pub fn chart_script() -> String {
    format!("{ECHARTS}\n{SCRIPT}")
}

/// Style and scripts with the policy's words for them, and what they draw, for a template.
pub(crate) fn charts_of(data: String) -> Value {
    let hashes: Vec<String> = [ECHARTS, SCRIPT].iter().map(|script| policy_hash(script)).collect();
    context! {
        css => CSS,
        echarts => ECHARTS,
        script => SCRIPT,
        script_hashes => hashes.join(" "),
        data,
    }
}

/// The report as one HTML file.
pub fn html(report: &Report) -> Result<String, Error> {
    let mut environment = Environment::new();
    // The name's ending turns on the escaping of HTML.
    environment.add_template("report.html", TEMPLATE)?;
    let data = serde_json::json!({"studies": report.studies.iter().map(charts).collect::<Vec<_>>()});
    let page = environment.get_template("report.html")?.render(
        context! { ..charts_of(script_safe(&data.to_string())), ..Value::from(Serde(page::context(report))) },
    )?;
    Ok(page)
}

/// The policy runs these two scripts and no other, whatever text should ever find its way into the page.
fn policy_hash(script: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(script)))
}

/// JSON inside a script element: nothing in it can end the element or begin a comment.
pub(crate) fn script_safe(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_the_script_element_early() {
        let hostile = serde_json::json!({"a": "</script><!-- & >"}).to_string();
        let safe = script_safe(&hostile);
        assert!(!safe.contains('<') && !safe.contains('>') && !safe.contains('&'));
        let back: serde_json::Value = serde_json::from_str(&safe).unwrap();
        assert_eq!(back["a"], "</script><!-- & >");
    }

    #[test]
    fn embedded_scripts_do_not_end_their_own_element() {
        for script in [ECHARTS, SCRIPT] {
            assert!(!script.contains("</script"));
            assert!(!script.contains("<!--"));
        }
    }
}
