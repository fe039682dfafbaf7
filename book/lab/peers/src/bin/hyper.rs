//! hyper on tokio's single-threaded runtime: one server core, the same answer as the others.

use std::convert::Infallible;
use std::error::Error;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, header, server::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::LocalSet;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    LocalSet::new().run_until(accept(listener)).await;
    Ok(())
}

async fn accept(listener: TcpListener) {
    loop {
        // Simplification: an accept that fails is tried again at once. Nobody runs out of descriptors here.
        let Ok((client, _)) = listener.accept().await else { continue };
        let _ = client.set_nodelay(true);
        tokio::task::spawn_local(async move {
            let _ = http1::Builder::new()
                .pipeline_flush(true)
                .serve_connection(TokioIo::new(client), service_fn(answer))
                .await;
        });
    }
}

async fn answer(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(peers::BODY)));
    let plain = header::HeaderValue::from_static("text/plain");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    Ok(response)
}
