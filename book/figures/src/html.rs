//! Text for HTML that stands in Markdown.

/// `text` as the content of an element or as a value of an attribute, on one line.
///
/// The bar is written as an entity, since it would end the cell of a Markdown table.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    // A no-break space between a number and its unit stays one.
    for letter in text.split_ascii_whitespace().collect::<Vec<_>>().join(" ").chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '|' => safe.push_str("&#124;"),
            _ => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_is_escaped() {
        assert_eq!(
            super::escape("a <b>\n \"c\" & d|e"),
            "a &lt;b&gt; &quot;c&quot; &amp; d&#124;e"
        );
    }
}
