//! `{{#number EXPR | unit=ms digits=1}}`: a number out of the records.

use crate::Sources;
use crate::directive;
use crate::expression::{self, Cell, Written};
use crate::fault::{Result, fault};
use crate::html::escape;

/// How a number is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Style {
    unit: String,
    /// After the point; `None`: three significant ones.
    digits: Option<usize>,
}

/// The most digits after the point that anybody may ask for.
const DIGITS_MAX: usize = 9;

/// The directive's HTML.
///
/// # Errors
/// If the expression has no value.
pub fn render(body: &str, sources: &Sources) -> Result<String> {
    let (written, options) = expression::over_records(body)?;
    let style = Style::read(options)?;
    let value = written.value(&sources.ours)?;
    let shown = format!(
        "<data class=\"number\" value=\"{value}\" title=\"{}\">{}</data>",
        escape(&written.text),
        escape(&style.show(value))
    );
    Ok(match yours(&written, sources) {
        Some(yours) => {
            let note = escape(&style.show(yours));
            format!("{shown} <span class=\"yours\">(yours: {note})</span>")
        }
        None => shown,
    })
}

impl Style {
    /// Reads `unit=ms digits=1`.
    ///
    /// # Errors
    /// If it is something else.
    pub fn read(text: &str) -> Result<Style> {
        let mut style = Style::default();
        for (key, value) in directive::options(text, &["unit", "digits"])? {
            match (&*key, value.parse()) {
                ("unit", _) => style.unit = value,
                (_, Ok(digits)) if digits <= DIGITS_MAX => style.digits = Some(digits),
                _ => {
                    return fault(
                        format!("digits={value} is not how many digits follow the point"),
                        format!("write a number from 0 to {DIGITS_MAX}, or leave it out"),
                    );
                }
            }
        }
        Ok(style)
    }

    /// The number with its unit.
    pub fn show(&self, value: f64) -> String {
        let number = self.digits.map_or_else(|| significant(value), |it| decimal(value, it));
        if self.unit.is_empty() { number } else { format!("{number}\u{a0}{}", self.unit) }
    }
}

/// With three significant digits, and no zeros that say nothing: `1,230`, `12.3`, `0.5`.
pub fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    // The exponent of the rounded number: 999.9 has four digits before the point.
    let rounded = format!("{value:.2e}");
    let exponent: i32 = rounded.split_once('e').and_then(|it| it.1.parse().ok()).unwrap_or(0);
    let value: f64 = rounded.parse().unwrap_or(value);
    let digits = usize::try_from(2 - exponent).unwrap_or(0);
    let text = decimal(value, digits);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// With so many digits after the point, and thousands apart.
pub fn decimal(value: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", value.abs());
    let (whole, part) = text.split_once('.').map_or((&*text, None), |it| (it.0, Some(it.1)));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let is_zero = text.chars().all(|it| it == '0' || it == '.');
    let sign = if value < 0.0 && !is_zero { "\u{2212}" } else { "" };
    part.map_or_else(|| format!("{sign}{grouped}"), |part| format!("{sign}{grouped}.{part}"))
}

/// The same of the reader's own records, if they answer.
///
/// All of the records that are named have to be the reader's: half of a sum from another machine would
/// be a number of no machine. What they cannot answer (a short run has fewer steps) is left out.
fn yours(written: &Written<Cell>, sources: &Sources) -> Option<f64> {
    let names = written.records();
    if names.is_empty() || !names.iter().all(|it| sources.yours.has(it)) {
        return None;
    }
    for fault in names.iter().filter_map(|it| sources.yours.table(it).err()) {
        sources.note(&fault);
    }
    written.value(&sources.yours).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_three_digits() {
        for (value, shown) in [
            (0.0, "0"),
            (1234.0, "1,230"),
            (23_500.0, "23,500"),
            (1_234_567.0, "1,230,000"),
            (999.9, "1,000"),
            (99.96, "100"),
            (12.345, "12.3"),
            (2.0, "2"),
            (0.253_4, "0.253"),
            (0.000_123_4, "0.000123"),
            (-4.5, "\u{2212}4.5"),
        ] {
            assert_eq!(significant(value), shown, "{value}");
        }
    }

    #[test]
    fn digits_and_units_can_be_chosen() {
        let show = |options: &str, value| Style::read(options).unwrap().show(value);
        assert_eq!(show("unit=ms digits=1", 1234.56), "1,234.6\u{a0}ms");
        assert_eq!(show("digits=0", 23_512.4), "23,512");
        assert_eq!(show("digits=1", -0.01), "0.0");
        assert_eq!(show("unit=\"requests/s\"", 0.5), "0.5\u{a0}requests/s");
        for options in ["digits=many", "digits=10", "digit=1"] {
            assert!(Style::read(options).is_err(), "{options}");
        }
    }
}
