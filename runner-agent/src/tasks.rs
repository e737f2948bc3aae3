//! Tasks that run in the background until they end by themselves.

use tracing::error;

/// Starts a task that nothing waits for. Logs a panic, which otherwise only the standard error
/// output would show.
#[expect(clippy::disallowed_methods, reason = "this is the place that notices a panic")]
pub(crate) fn detach(name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
    let running = tokio::spawn(task);
    tokio::spawn(async move {
        if running.await.is_err_and(|ended| ended.is_panic()) {
            error!(task = name, "Background task panicked");
        }
    });
}
