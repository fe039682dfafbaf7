//! What a figure draws, as tables: for those who would rather read numbers, or cannot see lines.

use super::data::{Data, Kind, Line, Panel, Spread};
use super::spec::Spec;
use crate::html::escape;
use crate::number::significant;
use std::fmt::Write;

/// A table for each plot, with a column for each of its lines, as HTML without an empty line.
/// `id` is what the ids of their captions begin with.
pub fn render(spec: &Spec, data: &Data, id: &str) -> String {
    let mut html = String::new();
    for (at, panel) in data.panels.iter().enumerate() {
        if spec.is_dots {
            html += &dots(spec, data, panel, &format!("{id}-{at}"));
            continue;
        }
        for y in 0..spec.ys.len() {
            html += &plot(spec, data, panel, y, &format!("{id}-{at}-{y}"));
        }
    }
    html
}

fn plot(spec: &Spec, data: &Data, panel: &Panel, y: usize, id: &str) -> String {
    // A line without a number in this plot is not drawn there.
    let lines: Vec<_> =
        panel.lines.iter().filter(|it| it.points.iter().any(|it| it.ys[y].is_some())).collect();
    let mut places: Vec<f64> = lines.iter().flat_map(|it| &it.points).map(|it| it.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let name = panel.name.iter().map(|it| format!("{}: ", spec.name(it))).collect::<String>();
    let mut html = format!(
        "<div class=\"numbers-table\" role=\"region\" aria-labelledby=\"{id}\" tabindex=\"0\">\n<table>\n\
         <caption id=\"{id}\">{}</caption>\n<thead><tr><th scope=\"col\">{}</th>",
        escape(&format!("{name}{}", spec.y_titles[y])),
        escape(&spec.x_title)
    );
    for line in &lines {
        let _ = write!(html, "<th scope=\"col\">{}</th>", escape(&head(spec, data, line, y)));
    }
    html += "</tr></thead>\n<tbody>\n";
    for x in places {
        let place = match &data.words {
            Some(words) => spec.name(&words[x as usize]).to_owned(),
            None => significant(x),
        };
        let cells = lines.iter().map(|it| cell(it, x, y)).collect::<String>();
        let _ = writeln!(html, "<tr><th scope=\"row\">{}</th>{cells}</tr>", escape(&place));
    }
    html + "</tbody>\n</table>\n</div>\n"
}

/// A row for each word, with all that was measured of it.
fn dots(spec: &Spec, data: &Data, panel: &Panel, id: &str) -> String {
    let has_yours = panel.lines.iter().any(|it| it.kind == Kind::Yours);
    let kinds = if has_yours { &[Kind::Ours, Kind::Yours][..] } else { &[Kind::Ours] };
    let caption = panel.name.as_deref().map_or(&*spec.title, |it| spec.name(it));
    let has_series = spec.series.is_some();
    let mut html = format!(
        "<div class=\"numbers-table\" role=\"region\" aria-labelledby=\"{id}\" tabindex=\"0\">\n<table>\n\
         <caption id=\"{id}\">{}</caption>\n<thead><tr><th scope=\"col\">{}</th>{}",
        escape(caption),
        escape(&spec.x_title),
        if has_series { "<th scope=\"col\"></th>" } else { "" }
    );
    for kind in kinds {
        let yours = if *kind == Kind::Yours { " (yours)" } else { "" };
        for title in &spec.y_titles {
            let _ = write!(html, "<th scope=\"col\">{}{yours}</th>", escape(title));
        }
    }
    html += "</tr></thead>\n<tbody>\n";
    for (at, word) in data.words.iter().flatten().enumerate() {
        let x = at as f64;
        let of_word = |it: &&Line| it.points.iter().any(|it| it.x == x);
        let Some(first) = panel.lines.iter().find(of_word) else { continue };
        let _ = write!(html, "<tr><th scope=\"row\">{}</th>", escape(spec.name(word)));
        if has_series {
            let _ = write!(html, "<td>{}</td>", escape(spec.name(&data.series[first.series])));
        }
        for kind in kinds {
            let line = panel.lines.iter().filter(|it| it.kind == *kind).find(of_word);
            for y in 0..spec.ys.len() {
                html += &line.map_or_else(missing, |it| cell(it, x, y));
            }
        }
        html += "</tr>\n";
    }
    html + "</tbody>\n</table>\n</div>\n"
}

/// What a line is called. One that has no name is called what it measures.
fn head(spec: &Spec, data: &Data, line: &Line, y: usize) -> String {
    let series = spec.name(&data.series[line.series]);
    let name = if series.is_empty() { &spec.y_titles[y] } else { series };
    match line.kind {
        Kind::Ours => name.to_owned(),
        Kind::Predicted => format!("{name} (predicted)"),
        Kind::Yours => format!("{name} (yours)"),
    }
}

fn missing() -> String {
    "<td><span aria-label=\"not measured\" role=\"img\">–</span></td>".to_owned()
}

/// The median, and the least and the greatest if they differ. A dash is what was not measured.
fn cell(line: &Line, x: f64, y: usize) -> String {
    let point = line.points.iter().find(|it| it.x == x);
    let text = match point.and_then(|it| it.ys[y]) {
        None => return missing(),
        Some(Spread { median, min, max, .. }) if min == max => significant(median),
        Some(Spread { median, min, max, .. }) => format!(
            "{} <small>({} to {})</small>",
            significant(median),
            significant(min),
            significant(max)
        ),
    };
    format!("<td>{text}</td>")
}
