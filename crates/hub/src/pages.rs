//! Pages: templates over what `query` says. HTML is escaped by default, and tables need no script.

use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde_json::{Value, json};

use crate::error::Error;
use crate::query::Histories;

/// Nothing but the hub's own style; no script at all.
pub(crate) const POLICY: &str =
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// On pages with charts the hub's own script as well, which sets the style of what it draws.
pub(crate) const CHART_POLICY: &str = "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; \
     img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// The same where no header says it: what a page itself may say.
const STATIC_POLICY: &str = "default-src 'none'; style-src 'self'; form-action 'none'; base-uri 'none'";
const STATIC_CHART_POLICY: &str = "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; \
     img-src data:; form-action 'none'; base-uri 'none'";
/// A report has the scripts of its charts, by their hashes, in a place of its own without rights.
pub(crate) const REPORT_POLICY: &str = "sandbox allow-scripts; frame-ancestors 'none'";

/// The page with charts.
pub(crate) const HISTORY: &str = "history.html";

const TEMPLATES: [(&str, &str); 12] = [
    ("parts.html", include_str!("../assets/parts.html.jinja")),
    ("base.html", include_str!("../assets/base.html.jinja")),
    ("front.html", include_str!("../assets/front.html.jinja")),
    ("search.html", include_str!("../assets/search.html.jinja")),
    ("bundle.html", include_str!("../assets/bundle.html.jinja")),
    ("claim.html", include_str!("../assets/claim.html.jinja")),
    ("compare.html", include_str!("../assets/compare.html.jinja")),
    ("host.html", include_str!("../assets/host.html.jinja")),
    ("server.html", include_str!("../assets/server.html.jinja")),
    ("places.html", include_str!("../assets/places.html.jinja")),
    (HISTORY, include_str!("../assets/history.html.jinja")),
    ("note.html", include_str!("../assets/note.html.jinja")),
];
const ATOM: &str = include_str!("../assets/feed.atom.jinja");
const OWN_CSS: &str = include_str!("../assets/hub.css");

/// The style of reports, and what the hub adds.
pub(crate) fn css() -> String {
    format!("{}\n{OWN_CSS}", report::CSS)
}

/// Templates that are read once.
pub(crate) struct Pages {
    environment: Environment<'static>,
    /// What stands before each way: empty, or where an export stands on its web space.
    base: String,
    /// Nobody answers forms and searches.
    is_static: bool,
}

impl Pages {
    pub(crate) fn new(base: &str, is_static: bool) -> Result<Pages, Error> {
        let mut environment = Environment::new();
        for (name, text) in TEMPLATES {
            environment.add_template(name, text)?;
        }
        environment.add_template("feed.xml", ATOM)?;
        environment.add_filter("figure", figure);
        environment
            .add_filter("ratio", |value: Option<f64>| value.map_or_else(|| "–".to_owned(), report::ratio));
        environment.add_filter("metric", |name: String| report::metric_name(&name));
        environment.add_filter("percent", |value: Option<f64>| {
            value.map_or_else(|| "–".to_owned(), |share| format!("{:.2} %", share * 100.0))
        });
        environment
            .add_filter("way", move |name: String| encoded(if is_static { in_folder(&name) } else { name }));
        Ok(Pages { environment, base: base.to_owned(), is_static })
    }

    pub(crate) fn page(&self, name: &str, title: &str, data: &Value) -> Result<String, Error> {
        let template = self.environment.get_template(name)?;
        Ok(template.render(context! {
            base => self.base.clone(), is_static => self.is_static, title,
            policy => if name == HISTORY { STATIC_CHART_POLICY } else { STATIC_POLICY },
            version => env!("CARGO_PKG_VERSION"), data => minijinja::Value::from(Serde(data)),
        })?)
    }
}

/// A figure with so many digits as tell something.
fn figure(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.abs() >= 100.0 => {
            let digits = format!("{value:.0}");
            let mut text = String::new();
            for (at, digit) in digits.chars().enumerate() {
                if at > 0 && (digits.len() - at) % 3 == 0 && digit.is_ascii_digit() {
                    text.push(',');
                }
                text.push(digit);
            }
            text
        }
        Some(value) if value.abs() >= 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.3}"),
    }
}

/// A text as a part of a way in an URL.
pub(crate) fn encoded(text: String) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~@".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// A name that somebody submitted, as the name of a folder of static pages: it leads nowhere else.
pub(crate) fn in_folder(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_~@+.".contains(c);
    let is_plain = name.chars().all(plain) && !name.starts_with('.') && !name.is_empty() && name.len() < 200;
    if is_plain { name.to_owned() } else { store::bundle::sha256(name.as_bytes()) }
}

/// A page of a few words.
pub(crate) fn note(pages: &Pages, title: &str, text: &str, link: Option<&str>) -> Result<String, Error> {
    pages.page("note.html", title, &json!({"text": text, "link": link}))
}

/// Histories with their charts.
pub(crate) fn history(found: &Histories, flavor: &str, metric: &str, flavors: &[String]) -> Value {
    let known = found.history.json();
    let each = found
        .history
        .series
        .iter()
        .enumerate()
        .map(|(at, series)| json!({"label": series.label(), "series": known["series"][at]}));
    json!({"flavor": flavor, "metric": metric, "flavors": flavors, "series": each.collect::<Vec<_>>(),
           "charts": report::history::charts(&found.history), "words": found.words, "next": found.next})
}
