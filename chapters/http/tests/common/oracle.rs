//! A second opinion: what a stream of requests has to be answered with, found out the naive way.
//!
//! It has the whole stream, looks at it as lines of text, allocates as it likes and knows no states. Only
//! whether the bytes of a head are allowed is asked of `httparse` here too.

use http::{Answer, App, Content, Method, OddEven, Reply, Request};

/// What has to come back.
#[derive(Debug)]
pub enum Expected {
    /// `100 Continue`.
    Continue,
    /// An answer of the application or of the method that nobody knows.
    Answer { status: u16, body: Vec<u8>, is_bodiless: bool, closes: bool },
    /// A refusal with one of these statuses; then nothing.
    Refusal { statuses: &'static [u16], is_bodiless: bool },
}

/// The answers to `stream` and the client's half-close.
pub fn expected(stream: &[u8]) -> Vec<Expected> {
    let mut all = Vec::new();
    let mut rest = stream;
    loop {
        rest = rest.strip_prefix(b"\r\n").unwrap_or(rest);
        if rest.is_empty() {
            return all;
        }
        match one(rest, &mut all) {
            Ok(Some(used)) => rest = &rest[used..],
            Ok(None) => return all,
            Err(statuses) => {
                all.push(Expected::Refusal { statuses, is_bodiless: rest.starts_with(b"HEAD ") });
                return all;
            }
        }
    }
}

/// One request: how long it is, or that it was the last, or why not.
fn one(rest: &[u8], all: &mut Vec<Expected>) -> Result<Option<usize>, &'static [u16]> {
    let head = head(rest)?;
    let fields = Fields::of(&rest[..head], rest)?;
    if fields.expects && fields.length != Some(0) && (fields.length.is_some() || fields.chunked) {
        all.push(Expected::Continue);
    }
    let (body, used) = match fields.length {
        Some(length) => (rest[head..].get(..length).ok_or(BAD)?.to_vec(), head + length),
        None if fields.chunked => {
            let (body, used) = chunks(&rest[head..])?;
            (body, head + used)
        }
        None => (Vec::new(), head),
    };
    all.push(fields.answered(&body));
    Ok((!fields.closes).then_some(used))
}

const BAD: &[u16] = &[400];

/// The length of the head.
fn head(rest: &[u8]) -> Result<usize, &'static [u16]> {
    if rest.starts_with(b"\n") || rest.starts_with(b"\r\n") {
        return Err(BAD);
    }
    let has_long_line = rest.len() >= 8_000 && !rest[..8_000].contains(&b'\n');
    let seen = if has_long_line { &rest[..8_000] } else { &rest[..rest.len().min(8_192)] };
    let mut fields = [httparse::EMPTY_HEADER; 64];
    match httparse::Request::new(&mut fields).parse(seen) {
        Ok(httparse::Status::Complete(length)) => Ok(length),
        Err(httparse::Error::TooManyHeaders) => Err(&[431]),
        Err(httparse::Error::Version) if seen.contains(&b'\n') => Err(version(seen)),
        Err(error) if error != httparse::Error::Version => Err(BAD),
        _ if has_long_line => Err(&[414]),
        _ if seen.len() == 8_192 => Err(&[431]),
        _ => Err(BAD), // It ends in the middle.
    }
}

fn version(seen: &[u8]) -> &'static [u16] {
    let text = String::from_utf8_lossy(seen);
    let line = text.split('\n').next().unwrap();
    let line = line.strip_suffix('\r').unwrap_or(line);
    let words: Vec<&str> = line.split(' ').collect();
    let is_version = words.len() == 3 && words[2].len() == 8 && words[2].starts_with("HTTP/") && {
        let numbers: Vec<char> = words[2][5..].chars().collect();
        numbers[0].is_ascii_digit() && numbers[1] == '.' && numbers[2].is_ascii_digit()
    };
    if is_version { &[505] } else { BAD }
}

/// What a head says.
struct Fields {
    method: String,
    target: String,
    length: Option<usize>,
    chunked: bool,
    expects: bool,
    closes: bool,
}

impl Fields {
    fn of(head: &[u8], rest: &[u8]) -> Result<Fields, &'static [u16]> {
        // One char for each byte, so that what is no text is text here.
        let text: String = head.iter().map(|&byte| char::from(byte)).collect();
        let lines: Vec<&str> = text.strip_suffix("\r\n\r\n").ok_or(BAD)?.split("\r\n").collect();
        if lines.iter().any(|line| line.contains(['\r', '\n'])) {
            return Err(BAD);
        }
        let words: Vec<&str> = lines[0].split(' ').collect();
        let is_1_1 = words[2] == "HTTP/1.1";
        let mut all = Vec::new();
        for line in &lines[1..] {
            let (name, value) = line.split_once(':').ok_or(BAD)?;
            all.push((name.to_lowercase(), value.trim_matches([' ', '\t']).to_string()));
        }
        let values = |name: &str| {
            all.iter().filter(|(key, _)| key == name).map(|(_, value)| value).collect::<Vec<_>>()
        };
        let (lengths, codings, hosts) =
            (values("content-length"), values("transfer-encoding"), values("host"));
        let options = values("connection")
            .iter()
            .map(|value| value.to_lowercase())
            .collect::<Vec<_>>()
            .join(",");
        let options: Vec<&str> =
            options.split(',').map(|option| option.trim_matches([' ', '\t'])).collect();

        let is_number = |text: &String| {
            !text.is_empty() && text.len() < 20 && text.chars().all(|c| c.is_ascii_digit())
        };
        let is_bad = hosts.len() > 1
            || (is_1_1 && hosts.is_empty())
            || !hosts.iter().all(|host| is_host(host))
            || lengths.len() > 1
            || !lengths.iter().all(|length| is_number(length))
            || codings.len() > 1
            || !codings.iter().all(|coding| is_1_1 && coding.eq_ignore_ascii_case("chunked"))
            || (!lengths.is_empty() && !codings.is_empty());
        let is_417 = is_1_1
            && values("expect").iter().any(|value| !value.eq_ignore_ascii_case("100-continue"));
        let target = std::str::from_utf8(rest).unwrap_or(words[1]);
        let target = if target == words[1] { target } else { words[1] };
        let target = local(words[0], target);
        match (is_bad || target.is_none(), is_417) {
            (true, true) => return Err(&[400, 417]), // Both are right; the core says what it met first.
            (true, false) => return Err(BAD),
            (false, true) => return Err(&[417]),
            (false, false) => {}
        }
        let length = lengths.first().map(|length| length.parse::<u64>().unwrap());
        if length.is_some_and(|length| length > 1_048_576) {
            return Err(&[413]);
        }
        Ok(Fields {
            method: words[0].to_string(),
            target: target.unwrap(),
            length: length.map(|length| length as usize),
            chunked: !codings.is_empty(),
            expects: is_1_1 && !values("expect").is_empty(),
            closes: options.contains(&"close") || (!is_1_1 && !options.contains(&"keep-alive")),
        })
    }

    fn answered(&self, body: &[u8]) -> Expected {
        let method = match self.method.as_str() {
            "GET" | "HEAD" => Method::Get,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "PATCH" => Method::Patch,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            "TRACE" => Method::Trace,
            _ => {
                let body = b"This server does not know the method.\n".to_vec();
                return Expected::Answer {
                    status: 501,
                    body,
                    is_bodiless: false,
                    closes: self.closes,
                };
            }
        };
        let (path, query) = match self.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&self.target[..], None),
        };
        let path = if path.is_empty() { "/" } else { path };
        let answer = match OddEven.answer(&Request { method, path, query, body }) {
            Reply::Now(answer) | Reply::Later { answer, .. } => answer,
        };
        let status = answer.status.line()[9..12].parse().unwrap();
        Expected::Answer {
            status,
            body: content(&answer),
            is_bodiless: self.method == "HEAD",
            closes: self.closes,
        }
    }
}

fn content(answer: &Answer<'_>) -> Vec<u8> {
    match answer.content {
        Content::Small(bytes) => bytes.to_vec(),
        Content::Repeated { block, length_bytes } => {
            block.iter().copied().cycle().take(length_bytes as usize).collect()
        }
    }
}

/// The path and the query of a target, if it is one that this method may have.
fn local(method: &str, target: &str) -> Option<String> {
    if !["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"].contains(&method) {
        return Some(String::new());
    }
    if !target.chars().all(|c| c.is_ascii_graphic()) {
        return None;
    }
    if target == "*" {
        return (method == "OPTIONS").then(|| target.to_string());
    }
    let mut local = target.to_string();
    if !target.starts_with('/') {
        let (scheme, rest) = target.split_once("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let is_web = ["http", "https"].contains(&&scheme.to_lowercase()[..]);
        if !is_web || rest[..end].is_empty() || !is_host(&rest[..end]) {
            return None;
        }
        local = rest[end..].to_string();
    }
    let local = local.split('#').next()?.to_string();
    let path = local.split('?').next()?.as_bytes();
    for (at, byte) in path.iter().enumerate() {
        if *byte == b'%' {
            u8::from_str_radix(std::str::from_utf8(path.get(at + 1..at + 3)?).ok()?, 16).ok()?;
            if path[at + 1] == b'+' {
                return None;
            }
        }
    }
    Some(local)
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.rfind(']') {
        Some(end) => host.split_at(end + 1),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port = if port.is_empty() { ":" } else { port };
    let is_port =
        port.starts_with(':') && port.len() < 7 && port[1..].chars().all(|c| c.is_ascii_digit());
    let is_name = match name.strip_prefix('[') {
        Some(address) => {
            let address = address.strip_suffix(']').unwrap_or("?");
            address.len() > 1
                && address.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.')
        }
        None => {
            (host.is_empty() || !name.is_empty())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=%".contains(c))
        }
    };
    is_name && is_port
}

/// The body that these chunks make, and how many bytes they are.
fn chunks(rest: &[u8]) -> Result<(Vec<u8>, usize), &'static [u16]> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let digits = rest[at..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let size = std::str::from_utf8(&rest[at..at + digits]).unwrap();
        let end = rest.get(at + digits).ok_or(BAD)?;
        if digits == 0 || digits > 16 || !b";\r".contains(end) {
            return Err(BAD);
        }
        let size = u64::from_str_radix(size, 16).unwrap();
        if u128::from(size) + body.len() as u128 > 1_048_576 {
            return Err(&[413]);
        }
        let line = line(&rest[at..])?;
        if line.len() > 1_024 {
            return Err(BAD);
        }
        at += line.len() + 2;
        if size == 0 {
            return Ok((body, at + trailers(&rest[at..])?));
        }
        body.extend_from_slice(rest.get(at..at + size as usize).ok_or(BAD)?);
        at += size as usize + 2;
        if rest.get(at - 2..at) != Some(b"\r\n") {
            return Err(BAD);
        }
    }
}

/// The length of the trailers and of the empty line behind them.
fn trailers(rest: &[u8]) -> Result<usize, &'static [u16]> {
    const BAD_OR_TOO_LARGE: &[u16] = &[400, 431];
    let mut at = 0;
    for count in 0.. {
        let is_large = count >= 64 || rest.len() - at > 8_000;
        let bad = if is_large { BAD_OR_TOO_LARGE } else { BAD };
        let line = line(&rest[at..]).map_err(|_| bad)?;
        let before = at;
        at += line.len() + 2;
        if line.is_empty() {
            return Ok(at);
        }
        let colon = line.iter().position(|&byte| byte == b':').ok_or(bad)?;
        let name = String::from_utf8_lossy(&line[..colon]).to_lowercase();
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty()
            || !name.chars().all(is_token)
            || ["content-length", "host", "transfer-encoding"].contains(&&name[..])
        {
            return Err(bad);
        }
        if count == 64 || before + line.len() - 2 * count > 8_192 {
            return Err(&[431]);
        }
    }
    unreachable!()
}

/// A line that ends with CR LF and has no control characters.
fn line(rest: &[u8]) -> Result<&[u8], &'static [u16]> {
    let end = rest.windows(2).position(|two| two == b"\r\n").ok_or(BAD)?;
    let is_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    if rest[..end].iter().all(is_text) { Ok(&rest[..end]) } else { Err(BAD) }
}
