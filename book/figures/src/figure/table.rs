//! What a figure draws, as a table: for those who would rather read numbers, or cannot see lines.

use super::data::{Data, Line, Point, Spread};
use super::spec::Spec;
use crate::html::escape;
use crate::number::significant;
use std::fmt::Write;

/// The table's HTML, without an empty line. `id` is what its caption is called.
pub fn render(spec: &Spec, data: &Data, id: &str) -> String {
    let has_yours = data.panels.iter().flat_map(|it| &it.lines).any(|it| it.is_yours);
    let mut heads: Vec<&str> = Vec::new();
    heads.extend(spec.panel.as_deref());
    heads.extend(spec.series.as_deref());
    heads.extend(has_yours.then_some("whose"));
    heads.push(&spec.x_title);
    heads.extend(spec.y_titles.iter().map(String::as_str));
    let mut html = format!(
        "<div class=\"numbers-table\" role=\"region\" aria-labelledby=\"{id}\" tabindex=\"0\">\n<table>\n\
         <caption id=\"{id}\">{}{}</caption>\n<thead><tr>",
        escape(&spec.title),
        if is_repeated(data) { ": the median, and from the least to the greatest" } else { "" }
    );
    for head in heads {
        let _ = write!(html, "<th scope=\"col\">{}</th>", escape(head));
    }
    html += "</tr></thead>\n<tbody>\n";
    for panel in &data.panels {
        for line in &panel.lines {
            let mut before = String::new();
            for name in panel.name.iter().map(|it| spec.name(it)) {
                before += &cell(name);
            }
            if spec.series.is_some() {
                before += &cell(spec.name(&data.series[line.series]));
            }
            if has_yours {
                before += &cell(if line.is_yours { "yours" } else { "ours" });
            }
            html += &rows(line, &before, data);
        }
    }
    html + "</tbody>\n</table>\n</div>\n"
}

fn rows(line: &Line, before: &str, data: &Data) -> String {
    let row = |point: &Point| {
        let x = match &data.words {
            Some(words) => words.get(point.x as usize).cloned().unwrap_or_default(),
            None => significant(point.x),
        };
        let ys: String = point.ys.iter().map(|it| cell(&number(*it))).collect();
        format!("<tr>{before}{}{ys}</tr>\n", cell(&x))
    };
    line.points.iter().map(row).collect()
}

fn cell(text: &str) -> String {
    format!("<td>{}</td>", escape(text))
}

fn number(spread: Option<Spread>) -> String {
    match spread {
        None => "not measured".to_owned(),
        Some(it) if it.count == 1 => significant(it.median),
        Some(it) => format!(
            "{} ({} to {})",
            significant(it.median),
            significant(it.min),
            significant(it.max)
        ),
    }
}

fn is_repeated(data: &Data) -> bool {
    data.values(|_| true).any(|it| it.count > 1)
}
