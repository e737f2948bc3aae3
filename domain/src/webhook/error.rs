/// Reason to reject a webhook command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WebhookError {
    #[error("cannot configure the webhook: it has no topics; name at least one topic")]
    NoTopics,
    #[error("cannot delete the webhook: it does not exist; list the webhooks for their names")]
    Missing,
}
