//! The status codes that the server may answer with, and the refusals: answers after which nothing on
//! the connection can be trusted.

/// A status code and its reason phrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200: here it is.
    Ok,
    /// 204: done, and there is nothing to send. Has no body.
    NoContent,
    /// 304: what the client has is still right. Has no body.
    NotModified,
    /// 400: what the client sent breaks the rules of HTTP, or those of the application.
    BadRequest,
    /// 404: no such resource.
    NotFound,
    /// 405: the resource does not have this method.
    MethodNotAllowed,
    /// 408: the request took longer than the server's patience.
    RequestTimeout,
    /// 413: the body is too large.
    ContentTooLarge,
    /// 414: the request line is too long.
    UriTooLong,
    /// 417: an expectation that the server does not know.
    ExpectationFailed,
    /// 431: the head is too large, or has too many fields.
    FieldsTooLarge,
    /// 501: a method that the server does not know.
    NotImplemented,
    /// 505: not HTTP/1.0 and not HTTP/1.1.
    VersionNotSupported,
}

impl Status {
    /// The first line of an answer with this status, its end included.
    pub const fn line(self) -> &'static str {
        match self {
            Status::Ok => "HTTP/1.1 200 OK\r\n",
            Status::NoContent => "HTTP/1.1 204 No Content\r\n",
            Status::NotModified => "HTTP/1.1 304 Not Modified\r\n",
            Status::BadRequest => "HTTP/1.1 400 Bad Request\r\n",
            Status::NotFound => "HTTP/1.1 404 Not Found\r\n",
            Status::MethodNotAllowed => "HTTP/1.1 405 Method Not Allowed\r\n",
            Status::RequestTimeout => "HTTP/1.1 408 Request Timeout\r\n",
            Status::ContentTooLarge => "HTTP/1.1 413 Content Too Large\r\n",
            Status::UriTooLong => "HTTP/1.1 414 URI Too Long\r\n",
            Status::ExpectationFailed => "HTTP/1.1 417 Expectation Failed\r\n",
            Status::FieldsTooLarge => "HTTP/1.1 431 Request Header Fields Too Large\r\n",
            Status::NotImplemented => "HTTP/1.1 501 Not Implemented\r\n",
            Status::VersionNotSupported => "HTTP/1.1 505 HTTP Version Not Supported\r\n",
        }
    }

    /// Whether an answer with this status has no body by definition, whatever its fields say.
    pub const fn is_bodiless(self) -> bool {
        matches!(self, Status::NoContent | Status::NotModified)
    }
}

/// Why a request is not answered but refused. The connection ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub status: Status,
    /// One sentence for the person at the other end; it is the body of the answer.
    pub why: &'static str,
}

impl Refusal {
    pub const fn bad(why: &'static str) -> Refusal {
        Refusal { status: Status::BadRequest, why }
    }
}
