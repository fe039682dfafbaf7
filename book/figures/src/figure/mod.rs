//! `{{#figure RECORD x=COLUMN y=EXPR …}}`: charts side by side, where they come from, and their numbers.

pub mod chart;
pub mod data;
pub mod dots;
pub mod labels;
pub mod scale;
pub mod spec;
pub mod table;

use crate::Sources;
use crate::fault::Result;
use crate::html::escape;
use chart::{Chart, NARROW, WIDE};
use data::Data;
use dots::Dots;
use serde_json::Value;
use spec::Spec;

/// The directive's HTML. `id` is what ids begin with: no other figure of the book may have it.
///
/// # Errors
/// If the directive or the record is not what it should be.
pub fn render(body: &str, id: &str, sources: &Sources) -> Result<String> {
    let spec = Spec::read(body)?;
    let ours = sources.ours.table(&spec.record)?;
    let origin = sources.ours.origin(&spec.record)?;
    let mut data = data::gather(&spec, &ours)?;
    let mut origins = Vec::new();
    origins.extend(spec.predicted.is_some().then(|| "Dashes: predicted.".to_owned()));
    origins.push(format!("Measured: {}", origin_of(&origin)));
    if sources.yours.has(&spec.record) {
        let yours = sources.yours.table(&spec.record);
        match yours.and_then(|it| data::overlay(&mut data, &spec, &it)) {
            Ok(()) => origins.push(match sources.yours.origin(&spec.record) {
                Ok(origin) => format!("Dotted, yours: {}", origin_of(&origin)),
                Err(_) => "Dotted, yours: of an origin that it does not tell.".to_owned(),
            }),
            Err(fault) => sources.note(&fault),
        }
    }
    let charts = charts(&spec, &data, id)?;
    let class = if data.panels.len() > 1 { "charts several" } else { "charts one" };
    Ok(format!(
        "<figure class=\"measured\" id=\"{id}\">\n<div class=\"figure-title\">{}</div>\n\
         <div class=\"{class}\">\n{charts}</div>\n<figcaption>\n<p class=\"origin\">{}{}</p>\n\
         <details class=\"numbers\">\n<summary>Show the numbers</summary>\n{}</details>\n</figcaption>\n</figure>\n",
        escape(&spec.title),
        repeats(&data),
        origins.join(" "),
        table::render(&spec, &data, &format!("{id}-numbers")),
    ))
}

/// A chart for each panel. One that is alone is drawn for a wide page and for a narrow one.
fn charts(spec: &Spec, data: &Data, id: &str) -> Result<String> {
    let sizes = if data.panels.len() > 1 { &[NARROW][..] } else { &[WIDE, NARROW] };
    let mut charts = String::new();
    for (at, panel) in data.panels.iter().enumerate() {
        for size in sizes {
            let id = format!("{id}-{at}-{}", size.class);
            charts += &match spec.is_dots {
                true => Dots { spec, data, panel, id, size: *size }.draw()?,
                false => Chart { spec, data, panel, id, size: *size }.draw()?,
            };
        }
    }
    Ok(charts)
}

/// What lines and bands are, if there are bands.
fn repeats(data: &Data) -> String {
    let count = data.values(|_| true).map(|it| it.count).max().unwrap_or(0);
    if count < 2 {
        return String::new();
    }
    format!("Drawn: the median of {count} repeats, and from the least to the greatest. ")
}

/// Where a record comes from, in a line of HTML. What it does not say is left out.
fn origin_of(origin: &Value) -> String {
    let text = |key: &str| origin.get(key).and_then(Value::as_str).map(escape);
    let mut parts = Vec::new();
    parts.extend(text("date").map(|it| it.split('T').next().unwrap_or_default().to_owned()));
    parts.extend(text("command").map(|it| format!("<code>{it}</code>")));
    parts.extend(text("commit").map(|it| format!("commit {it}")));
    parts.extend(text("kernel").map(|it| format!("Linux {it}")));
    parts.extend(text("cpu"));
    let cores = origin.get("cores").and_then(Value::as_u64);
    parts.extend(cores.map(|it| if it == 1 { "1 core".to_owned() } else { format!("{it} cores") }));
    let mut sentence = format!("{}.", parts.join(", "));
    if origin.get("interrupted").and_then(Value::as_bool) == Some(true) {
        sentence += " The run was ended before its end.";
    }
    sentence
}
