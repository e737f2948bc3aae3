//! Transactions that end even if their caller stops waiting.

/// Runs a transaction to its end although its caller may be dropped, for example because a client
/// closed its connection. If `begin` of sqlx 0.8 is dropped, the transaction stays open on its pooled
/// connection. Later statements on that connection are then rolled back with it.
///
/// # Errors
/// Those of the transaction. A panic in it is an error of the database.
#[expect(
    clippy::disallowed_methods,
    reason = "the handle is awaited, and the task must outlive a caller that stops waiting"
)]
pub async fn completed<T, E>(
    transaction: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<sqlx::Error> + Send + 'static,
{
    let ended = tokio::spawn(transaction).await;
    ended.unwrap_or_else(|error| Err(sqlx::Error::Io(std::io::Error::other(error)).into()))
}
