//! `/healthz` and `/metrics` over plain HTTP.
//!
//! There are few connections at once, each for a short time, and a new one replaces the oldest:
//! every client that asks is answered, however many others keep silent.

mod guests;

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::{Metrics, NodeSample, TenantState};
use guests::Guests;

/// The media type of Prometheus' text format (OpenMetrics 1.0, which Prometheus reads).
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the handlers share.
pub(crate) struct Pages<S, T> {
    pub(crate) metrics: Arc<Metrics>,
    /// Asks the engine for its numbers.
    pub(crate) sample: S,
    /// Asks it which tenants it serves, which takes next to nothing.
    pub(crate) states: T,
    /// Cancelled once the node is stopping.
    pub(crate) stopping: CancellationToken,
}

/// Answers until `stop` is cancelled.
///
/// # Errors
/// When the listener fails.
pub(crate) async fn serve<S, T>(
    listener: TcpListener,
    pages: Pages<S, T>,
    stop: CancellationToken,
) -> std::io::Result<()>
where
    S: Fn() -> NodeSample + Send + Sync + 'static,
    T: Fn() -> Vec<TenantState> + Clone + Send + Sync + 'static,
{
    let Pages {
        metrics,
        sample,
        states,
        stopping,
    } = pages;
    let sample = Arc::new(sample);
    let router = Router::new()
        .route("/healthz", get(async move || health(&stopping, &states)))
        .route("/metrics", {
            get(async move || {
                (
                    [(header::CONTENT_TYPE, METRICS_TYPE)],
                    metrics.render(&sample()),
                )
            })
        });
    axum::serve(Guests::new(listener), router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

/// Answers with one page of metrics and with health until `stop` is cancelled.
///
/// # Errors
/// When the listener fails.
pub(crate) async fn serve_text(
    listener: TcpListener,
    render: impl Fn() -> String + Clone + Send + Sync + 'static,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let page = async move || ([(header::CONTENT_TYPE, METRICS_TYPE)], render());
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/metrics", get(page));
    axum::serve(Guests::new(listener), router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

/// A node that serves is 200, though it may not serve every tenant as it should: taking it out
/// of a balancer's rotation would help none of them and harm the others.
fn health(
    stopping: &CancellationToken,
    states: &impl Fn() -> Vec<TenantState>,
) -> (StatusCode, String) {
    if stopping.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
    }
    let states = states();
    let degraded = states.iter().filter(|state| state.is_degraded);
    let lines: String = degraded
        .map(|state| format!("{}: {}\n", state.tenant.escape_debug(), state.state))
        .collect();
    let word = if lines.is_empty() { "ok" } else { "degraded" };
    (StatusCode::OK, format!("{word}\n{lines}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn ask(address: std::net::SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn health_turns_with_stopping_and_metrics_are_text() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stopping, stop) = (CancellationToken::new(), CancellationToken::new());
        let sample = || NodeSample {
            memory_used_bytes: 1,
            memory_unreserved_bytes: 0,
            memory: Vec::new(),
            memory_max_bytes: 2,
            memory_target_bytes: 2,
            tenants: Vec::new(),
            copies: Vec::new(),
            certificate_expires_s: None,
            states: Vec::new(),
        };
        let states = || {
            let state = |state| TenantState {
                tenant: format!("{state}\n"),
                state,
                is_degraded: state == "read-only",
            };
            vec![state("open"), state("closed"), state("read-only")]
        };
        let pages = Pages {
            metrics: Arc::new(Metrics::new()),
            sample,
            states,
            stopping: stopping.clone(),
        };
        let server = tokio::spawn(serve(listener, pages, stop.clone()));

        let health = ask(address, "/healthz").await;
        assert!(health.starts_with("HTTP/1.1 200"), "{health}");
        let body = "\r\n\r\ndegraded\nread-only\\n: read-only\n";
        assert!(health.ends_with(body), "{health}");
        assert!(ask(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        // Sockets on which nobody says anything, or half of it, are in nobody's way.
        let mut silent = Vec::new();
        for _ in 0..3 * guests::CONNECTIONS_MAX {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /healthz HT").await.unwrap();
            silent.push(stream);
        }
        assert!(ask(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let ended = silent[0].read(&mut [0]).await;
        assert!(ended.is_ok_and(|bytes| bytes == 0), "the oldest has gone");
        drop(silent);
        assert!(
            ask(address, "/metrics")
                .await
                .contains("aerostat_memory_max_bytes 2")
        );
        assert!(ask(address, "/nothing").await.starts_with("HTTP/1.1 404"));
        stopping.cancel();
        assert!(ask(address, "/healthz").await.starts_with("HTTP/1.1 503"));
        stop.cancel();
        server.await.unwrap().unwrap();
    }
}
