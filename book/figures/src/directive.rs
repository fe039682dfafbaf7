//! Finds the directives of a page, and leaves alone what only looks like one.

use crate::fault::{Result, fault, listed};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::ops::Range;

/// What stands between `{{#` and `}}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive<'a> {
    /// Its place in the page, braces and all.
    pub range: Range<usize>,
    /// Its line, from 1.
    pub line: usize,
    /// Its first word.
    pub name: &'a str,
    /// All after that.
    pub body: &'a str,
}

/// A directive, or what looks like the beginning of one and has no end.
pub type Found<'a> = std::result::Result<Directive<'a>, usize>;

/// The directives of a page in Markdown, in order. One that is not closed is told by its line.
pub fn find(page: &str) -> Vec<Found<'_>> {
    let verbatim = verbatim(page);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = page[at..].find(OPEN).map(|it| at + it) {
        at = start + OPEN.len();
        let is_verbatim = verbatim.iter().any(|it| it.contains(&start));
        if is_verbatim || page[..start].ends_with('\\') {
            continue;
        }
        let line = 1 + page[..start].matches('\n').count();
        let inner = &page[at..];
        let Some(end) = end(inner) else {
            found.push(Err(line));
            continue;
        };
        let inner = &inner[..end];
        at += end + CLOSE.len();
        let (name, body) = inner.split_once(char::is_whitespace).unwrap_or((inner, ""));
        found.push(Ok(Directive { range: start..at, line, name, body }));
    }
    found
}

/// Reads `key=value key="a value" …`.
///
/// # Errors
/// If it is something else, or a key is none of `known` or there twice.
pub fn options(text: &str, known: &[&str]) -> Result<Vec<(String, String)>> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut left = text.trim();
    while !left.is_empty() {
        let key_length = left.find(|it: char| !(it.is_alphanumeric() || it == '_'));
        let key = &left[..key_length.unwrap_or(left.len())];
        let Some(value) =
            left[key.len()..].trim_start().strip_prefix('=').filter(|_| !key.is_empty())
        else {
            let next: String = left.chars().take(24).collect();
            return fault(
                format!("key=value is expected where there is `{next}`"),
                "a value with a blank in it stands in double quotes",
            );
        };
        let (value, rest) = option_value(value.trim_start(), key)?;
        if !known.contains(&key) {
            return fault(
                format!("there is no `{key}`"),
                format!("it takes {}", listed(known.to_vec())),
            );
        }
        if found.iter().any(|it| it.0 == key) {
            return fault(format!("`{key}` is there twice"), "leave one out");
        }
        found.push((key.to_owned(), value));
        left = rest.trim_start();
    }
    Ok(found)
}

const OPEN: &str = "{{#";
const CLOSE: &str = "}}";

/// Where a directive ends: at the first braces outside of double quotes.
fn end(inner: &str) -> Option<usize> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, it) in inner.char_indices() {
        match it {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '}' if !is_quoted && inner[at..].starts_with(CLOSE) => return Some(at),
            _ => {}
        }
    }
    None
}

/// A value up to a blank, or between quotes, and what follows it.
fn option_value<'a>(text: &'a str, key: &str) -> Result<(String, &'a str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        return Ok((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((value, &quoted[at + 1..])),
            '\\' if quoted[at + 1..].starts_with('"') => {
                letters.next();
                value.push('"');
            }
            _ => value.push(letter),
        }
    }
    fault(format!("the quote of `{key}` is not closed"), "put a `\"` at its end")
}

/// The places that Markdown shows as they are, and comments of HTML.
fn verbatim(page: &str) -> Vec<Range<usize>> {
    let mut places = Vec::new();
    let mut block = None;
    for (event, range) in Parser::new_ext(page, as_mdbook()).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(_)) => block = Some(range),
            Event::End(TagEnd::CodeBlock) => places.extend(block.take()),
            Event::Code(_) => places.push(range),
            _ => {}
        }
    }
    let mut at = 0;
    while let Some(start) = page[at..].find("<!--").map(|it| at + it) {
        let is_text = places.iter().any(|it| it.contains(&start));
        let end = page[start..].find("-->").map_or(page.len(), |it| start + it);
        at = if is_text { start + 4 } else { end };
        if !is_text {
            places.push(start..end);
        }
    }
    places
}

/// What mdBook's own parser is asked for, so that both see the same code.
fn as_mdbook() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_HEADING_ATTRIBUTES
        | Options::ENABLE_SMART_PUNCTUATION
        | Options::ENABLE_DEFINITION_LIST
        | Options::ENABLE_GFM
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name:line` of each that was found.
    fn found(page: &str) -> Vec<String> {
        let found = find(page);
        let told = found.iter().map(|it| match it {
            Ok(it) => format!("{}:{}", it.name, it.line),
            Err(line) => format!("open:{line}"),
        });
        told.collect()
    }

    #[test]
    fn directives_are_found_with_their_lines() {
        let page = "# A\n\n{{#number a.b}} and {{#claim a.b < 2\n | text=\"it {a.b}}} is\"}}\n{{#diff x y}}\n";
        assert_eq!(found(page), ["number:3", "claim:3", "diff:5"]);
        let claim = find(page)[1].clone().unwrap();
        assert_eq!(claim.body, "a.b < 2\n | text=\"it {a.b}}} is\"");
        assert_eq!(&page[claim.range.end..][..2], "\n{");
    }

    #[test]
    fn code_and_comments_and_escapes_are_left_alone() {
        for page in [
            "```text\n{{#number a}}\n```\n",
            "~~~\n```\n{{#number a}}\n~~~\n",
            "`````\n```\n{{#number a}}\n```\n`````\n",
            "> ```\n> {{#number a}}\n> ```\n",
            "- item\n\n  ```\n  {{#number a}}\n  ```\n",
            "Text:\n\n    {{#number a}}\n\nmore\n",
            "It is `{{#number a}}` here.\n",
            "It is `` `{{#number a}}` `` here.\n",
            "\\{{#number a}}\n",
            "<!-- {{#number a}} -->\n",
            "<!--\n\n{{#number a}}\n\n-->\n",
            "```\n{{#number a}}\nthis fence is never closed\n",
        ] {
            assert_eq!(found(page), [""; 0], "{page}");
        }
        // An indented line that goes on with a paragraph is no code, nor is what follows a fence.
        assert_eq!(found("text\n    {{#number a}}\n"), ["number:2"]);
        assert_eq!(found("```\n```\n{{#number a}}\n`x` {{#diff a}} `y`\n"), ["number:3", "diff:4"]);
        assert_eq!(found("`<!--` {{#number a}} `-->`\n"), ["number:1"]);
    }

    #[test]
    fn what_is_never_closed_is_told() {
        assert_eq!(found("a\n{{#number a\n\n{{#number b}}\n"), ["number:2"]);
        assert_eq!(found("a\n{{#claim 1 < 2 | text=\"a}}\n"), ["open:2"]);
    }

    #[test]
    fn options_are_read() {
        let known = ["unit", "text", "log"];
        let read = options(" unit=ms\n text=\"a \\\"b\\\" c\" log=\"x y\"", &known).unwrap();
        let read: Vec<_> = read.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(read, [("unit", "ms"), ("text", "a \"b\" c"), ("log", "x y")]);
        for (text, word) in [
            ("unit", "key=value is expected where there is `unit`"),
            ("=ms", "key=value is expected"),
            ("units=ms", "there is no `units`"),
            ("unit=ms unit=s", "`unit` is there twice"),
            ("text=\"a", "the quote of `text` is not closed"),
        ] {
            let told = options(text, &known).unwrap_err().to_string();
            assert!(told.starts_with(word), "{text}: {told}");
        }
    }
}
