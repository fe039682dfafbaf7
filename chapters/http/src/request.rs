//! A request as an application sees it: method, path, query and body.

/// The methods that the server knows. `HEAD` reaches an application as `Get`: the core leaves the body
/// of the answer out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Read a resource.
    Get,
    /// Hand something in.
    Post,
    /// Replace a resource.
    Put,
    /// Change a resource.
    Patch,
    /// Remove a resource.
    Delete,
    /// Ask what a resource can do.
    Options,
    /// Ask for the request back.
    Trace,
}

/// One request, whole.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What is to be done.
    pub method: Method,
    /// With what, as it came: it begins with `/` and may contain percent-encoded bytes, or it is `*`.
    pub path: &'a str,
    /// What stood behind the `?`, if there was one.
    pub query: Option<&'a str>,
    /// The body. Empty when there is none.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// The segments of the path: `/a//b` has three, `/` has one, which is empty.
    pub fn segments(&self) -> std::str::Split<'a, char> {
        self.path.strip_prefix('/').unwrap_or(self.path).split('/')
    }
}

/// The bytes that a segment of a path stands for: `%37` is `7`.
///
/// A segment is cut out first and decoded then, so that `%2F` is a byte of a name and no separator.
pub fn decoded(segment: &str) -> impl Iterator<Item = u8> + '_ {
    let mut bytes = segment.bytes();
    std::iter::from_fn(move || {
        let byte = bytes.next()?;
        if byte != b'%' {
            return Some(byte);
        }
        // The core has refused every request with a `%` that two hexadecimal digits do not follow.
        let (high, low) = (hexadecimal(bytes.next()?)?, hexadecimal(bytes.next()?)?);
        Some(high << 4 | low)
    })
}

/// The value of a hexadecimal digit.
pub(crate) fn hexadecimal(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
