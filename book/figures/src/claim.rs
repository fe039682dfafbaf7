//! `{{#claim EXPR < EXPR | text="…"}}`: a sentence that is checked whenever the book is built.

use crate::Sources;
use crate::directive;
use crate::expression;
use crate::fault::{Result, fault};
use crate::html::escape;
use crate::number;

/// The directive's HTML: the sentence with a mark, or the mark alone.
///
/// Checked against our records only: on another machine a sentence may be false, and the book is no
/// less right about ours.
///
/// # Errors
/// If the claim is false, with both of its sides; or a side has no value.
pub fn render(body: &str, sources: &Sources) -> Result<String> {
    let ((first, links), options) = expression::comparison(body)?;
    let options = directive::options(options, &["text"])?;
    let mut compared = first.text.clone();
    let mut left = (&first, first.value(&sources.ours)?);
    for (comparison, side) in &links {
        let right = (side, side.value(&sources.ours)?);
        if !comparison.holds(left.1, right.1) {
            return fault(
                format!(
                    "it is false: {} is not {} {}",
                    told(&left.0.text, left.1),
                    comparison.sign(),
                    told(&right.0.text, right.1)
                ),
                "change the sentence, or measure again: it is checked against the committed records",
            );
        }
        compared += &format!(" {} {}", comparison.sign(), side.text);
        left = right;
    }
    let mark = format!(
        "<span class=\"checked\" role=\"img\" aria-label=\"checked against the records\" title=\"{}\">✓</span>",
        escape(&compared)
    );
    let Some((_, text)) = options.first() else { return Ok(mark) };
    // A word joiner, so that the mark never begins a line.
    let text = with_numbers(text.trim(), sources)?;
    Ok(format!("<span class=\"claim\">{text}&#8288;{mark}</span>"))
}

/// A side as an error shows it: `median a.b = 3.2`, and a constant only once.
fn told(text: &str, value: f64) -> String {
    if text.parse() == Ok(value) { text.to_owned() } else { format!("{text} = {value}") }
}

/// `text` with each `{EXPR}` as the number that it is.
fn with_numbers(text: &str, sources: &Sources) -> Result<String> {
    let mut whole = String::new();
    let mut left = text;
    while let Some((before, rest)) = left.split_once('{') {
        let Some((inner, after)) = rest.split_once('}') else {
            return fault("a `{` of the text is not closed", "write {EXPR} or {EXPR | unit=ms}");
        };
        whole += before;
        whole += &number::render(inner, sources)?;
        left = after;
    }
    Ok(whole + left)
}
