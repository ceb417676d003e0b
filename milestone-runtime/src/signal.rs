//! The signals by which a process is told to stop.

/// Waits until the process is told to stop: by SIGTERM or SIGINT (Ctrl-C) on Unix, by Ctrl-C elsewhere. For
/// [`Runtime::run_until`](crate::Runtime::run_until). Where the signals cannot be listened to, that is logged, and this waits for ever.
pub async fn stop_signal() {
    if let Err(error) = listen().await {
        tracing::error!(%error, "the signals that stop this process cannot be listened to");
        std::future::pending::<()>().await;
    }
}

#[cfg(unix)]
async fn listen() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(not(unix))]
async fn listen() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}
