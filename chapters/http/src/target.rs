//! What a request is about: `/path?query`, `http://host/path?query`, or `*`.

use crate::Method;
use crate::head::Verb;
use crate::request::hexadecimal;
use crate::status::Refusal;

/// The target of a request, its authority and fragment left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    pub path: &'a str,
    pub query: Option<&'a str>,
}

/// Understands a target. `text` has no blanks and no control characters: `httparse` has seen to that.
pub(crate) fn parse(verb: Verb, text: &str) -> Result<Target<'_>, Refusal> {
    if verb == Verb::Unknown {
        return Ok(Target { path: text, query: None }); // 501, whatever it is about.
    }
    if text == "/" {
        return Ok(Target { path: text, query: None }); // What follows would find the same, later.
    }
    if !text.is_ascii() {
        return Err(Refusal::bad("A target is ASCII: other bytes are percent-encoded.\n"));
    }
    if text == "*" && verb == Verb::Known(Method::Options) {
        return Ok(Target { path: "*", query: None });
    }
    let local = match text.as_bytes().first() {
        Some(b'/') => text,
        _ => without_origin(text)?,
    };
    let local = local.split_once('#').map_or(local, |(local, _fragment)| local);
    let (path, query) = match local.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (local, None),
    };
    if path.contains('%') && !is_encoded(path.as_bytes()) {
        return Err(Refusal::bad("A % in a path is followed by two hexadecimal digits.\n"));
    }
    // `http://host` and `http://host?query` are about `/`.
    Ok(Target { path: if path.is_empty() { "/" } else { path }, query })
}

/// The absolute form, which proxies are sent and every server has to understand.
fn without_origin(text: &str) -> Result<&str, Refusal> {
    const BAD: Refusal = Refusal::bad("A target begins with / or with http://host.\n");
    let (scheme, rest) = text.split_once("://").ok_or(BAD)?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(BAD);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, local) = rest.split_at(end);
    if authority.is_empty() || !is_authority(authority.as_bytes()) {
        return Err(BAD);
    }
    Ok(local)
}

/// Whether these bytes are a host and perhaps a port: `localhost`, `127.0.0.1:8080`, `[::1]:80`. A field
/// `Host` may be empty too.
pub(crate) fn is_authority(bytes: &[u8]) -> bool {
    let rest = match bytes.first() {
        Some(b'[') => {
            let Some(end) = bytes.iter().position(|&byte| byte == b']') else { return false };
            let address = &bytes[1..end];
            let is_inside = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
            if address.len() < 2 || !address.iter().all(is_inside) {
                return false;
            }
            &bytes[end + 1..]
        }
        _ => {
            let end = bytes.iter().position(|&byte| byte == b':').unwrap_or(bytes.len());
            if !bytes[..end].iter().all(|&byte| is_name(byte)) || (end == 0 && !bytes.is_empty()) {
                return false;
            }
            &bytes[end..]
        }
    };
    match rest.split_first() {
        None => true,
        Some((b':', port)) => port.len() <= 5 && port.iter().all(u8::is_ascii_digit),
        Some(_) => false,
    }
}

/// Unreserved characters, those that divide parts of a name, and `%`.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte)
}

fn is_encoded(path: &[u8]) -> bool {
    let mut rest = path;
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        match rest[at + 1..] {
            [high, low, ..] if hexadecimal(high).is_some() && hexadecimal(low).is_some() => {
                rest = &rest[at + 3..]
            }
            _ => return false,
        }
    }
    true
}
