//! `stead webhooks`: send messages about events to HTTP endpoints.
use std::{collections::BTreeSet, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use domain::webhook::Topic;
use schemas::control::webhooks::{
    ConfigureWebhook, DeliveriesQuery, ReplayDeliveries, Webhook, WebhookConfigured, WebhookFormat,
    WebhookTested,
};

use crate::{
    failure::Failure,
    render::{Table, moment},
    settings::{CommandContext, PageArgs, Settings},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Webhooks {
    /// Create a webhook, or replace its settings
    #[command(after_help = "\
Examples:
  stead webhooks set ops --url https://ops.example.com/stead --topic run.failed --topic job.outcome_unknown
  stead webhooks set chat --url-file slack-url.txt --format slack --topic run.approval_requested
  stead webhooks set ops --topic run.failed --rotate-secret

Topics: run.approval_requested, run.failed, run.succeeded, run.drift_found, job.outcome_unknown, \
runner.disconnected, runner.reconnected.

Messages are signed as https://www.standardwebhooks.com specifies. The signing secret is printed once. After \
--rotate-secret, the former secret also signs for 24 hours.")]
    Set(Set),
    /// List webhooks
    #[command(after_help = "Example:\n  stead webhooks list")]
    List(PageArgs),
    /// Show a webhook
    #[command(after_help = "Example:\n  stead webhooks show ops")]
    Show {
        /// Name of the webhook
        webhook: String,
    },
    /// Send a test message, and print the response of the endpoint
    #[command(after_help = "Example:\n  stead webhooks test ops")]
    Test {
        /// Name of the webhook
        webhook: String,
    },
    /// List the deliveries of a webhook, newest event first
    #[command(after_help = "Example:\n  stead webhooks deliveries ops --state failed")]
    Deliveries(Deliveries),
    /// Send deliveries again, also delivered ones, and pending ones without a wait
    #[command(after_help = "\
Examples:
  stead webhooks replay ops --state failed
  stead webhooks replay ops --state pending
  stead webhooks replay ops --from 1200 --to 1300

Messages keep their ids, so receivers recognize the ones that they got already. The server keeps deliveries for 30 \
days.")]
    Replay(Replay),
    /// Delete a webhook with its deliveries
    #[command(after_help = "Example:\n  stead webhooks delete ops")]
    Delete {
        /// Name of the webhook
        webhook: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    /// Name of the webhook
    webhook: String,
    /// URL of the endpoint [default: the present URL]
    #[arg(long, value_name = "URL", conflicts_with = "url_file")]
    url: Option<String>,
    /// File with the URL, if the URL is secret
    #[arg(long, value_name = "FILE")]
    url_file: Option<PathBuf>,
    /// Topic of the messages; repeat the option for several
    #[arg(long = "topic", value_name = "TOPIC", required = true)]
    topics: Vec<Topic>,
    /// Format of the messages
    #[arg(long, value_enum, default_value_t)]
    format: MessageFormat,
    /// Create a new signing secret
    #[arg(long)]
    rotate_secret: bool,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum MessageFormat {
    /// Object with type, timestamp and data
    #[default]
    Standard,
    /// Object with text, for Slack and compatible chats
    Slack,
}

#[derive(Debug, Args)]
pub(crate) struct Deliveries {
    /// Name of the webhook
    webhook: String,
    /// Only deliveries in this state: pending, delivered, failed
    #[arg(long)]
    state: Option<String>,
    #[command(flatten)]
    part: PageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Name of the webhook
    webhook: String,
    /// Only deliveries in this state: pending, delivered, failed
    #[arg(long)]
    state: Option<String>,
    /// Only deliveries of events from this position
    #[arg(long, value_name = "POSITION")]
    from: Option<u64>,
    /// Only deliveries of events up to this position
    #[arg(long, value_name = "POSITION")]
    to: Option<u64>,
}

pub(crate) async fn run(verb: Webhooks, settings: &Settings) -> Result<(), Failure> {
    let context = settings.context()?;
    match verb {
        Webhooks::Set(args) => set(&context, args).await,
        Webhooks::List(part) => list(&context, part).await,
        Webhooks::Show { webhook } => {
            let webhook = context.client.webhook(&webhook).await?;
            context.screen.print_one(&webhook, |_| text(&webhook))
        }
        Webhooks::Test { webhook } => test(&context, &webhook).await,
        Webhooks::Deliveries(args) => deliveries(&context, args).await,
        Webhooks::Replay(args) => replay(&context, args).await,
        Webhooks::Delete { webhook } => {
            let deleted = context.client.delete_webhook(&webhook).await?;
            context.screen.print_one(&deleted, |_| format!("Deleted the webhook {webhook}.\n"))
        }
    }
}

async fn set(context: &CommandContext, args: Set) -> Result<(), Failure> {
    let url = match (args.url, args.url_file) {
        (Some(url), _) => Some(url),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(&file).map_err(|error| {
                let file = file.display();
                Failure::Usage(format!("cannot read the URL in {file}: {error}; pass a text file"))
            })?;
            Some(text.trim().to_owned())
        }
        (None, None) => None,
    };
    let topics: BTreeSet<String> = args.topics.iter().map(ToString::to_string).collect();
    let format = match args.format {
        MessageFormat::Standard => WebhookFormat::Standard,
        MessageFormat::Slack => WebhookFormat::Slack,
    };
    let body = ConfigureWebhook { url, topics, format, rotate_secret: args.rotate_secret };
    let configured = context.client.configure_webhook(&args.webhook, &body).await?;
    context.screen.print_one(&configured, |_| configured_text(&configured))
}

fn configured_text(configured: &WebhookConfigured) -> String {
    let WebhookConfigured { name, secret, changed, .. } = configured;
    let result = match changed {
        true => format!("Configured the webhook {name}.\n"),
        false => format!("No changes: the webhook {name} has these settings already.\n"),
    };
    match secret {
        Some(secret) => format!(
            "{result}Signing secret: {secret}\nStore it at the receiver now: the server does not show it again.\n"
        ),
        None => result,
    }
}

async fn list(context: &CommandContext, part: PageArgs) -> Result<(), Failure> {
    let page = context.client.webhooks(&part.listing()).await?;
    context.screen.print_list(
        &page.items,
        "No webhooks. Create one: stead webhooks set",
        |_| {
            let mut table = Table::new(["name", "endpoint", "format", "topics", "configured"]);
            for webhook in &page.items {
                table.row([
                    webhook.name.clone(),
                    webhook.origin.clone(),
                    format_name(webhook.format).into(),
                    topics(webhook),
                    moment(&webhook.configured_at),
                ]);
            }
            table
        },
    )?;
    context.more(page.next.as_deref());
    Ok(())
}

fn text(webhook: &Webhook) -> String {
    let Webhook { name, origin, format, configured_at, .. } = webhook;
    format!(
        "{name}\n\nendpoint    {origin}\nformat      {}\ntopics      {}\nconfigured  {}\n",
        format_name(*format),
        topics(webhook),
        moment(configured_at)
    )
}

fn topics(webhook: &Webhook) -> String {
    webhook.topics.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn format_name(format: WebhookFormat) -> &'static str {
    match format {
        WebhookFormat::Standard => "standard",
        WebhookFormat::Slack => "slack",
    }
}

async fn test(context: &CommandContext, name: &str) -> Result<(), Failure> {
    let spinner = context.screen.spinner("sending");
    let tested = context.client.test_webhook(name).await;
    spinner.finish_and_clear();
    let tested = tested?;
    let WebhookTested { delivered, status, error } = &tested;
    let status = status.map_or_else(|| "no response".into(), |status| status.to_string());
    context.screen.print_one(&tested, |_| match delivered {
        true => format!("The endpoint accepted the test message ({status}).\n"),
        false => String::new(),
    })?;
    match (delivered, error) {
        (true, _) => Ok(()),
        (false, error) => Err(Failure::Outcome(format!(
            "the endpoint did not accept the test message: {}; correct the endpoint or its URL",
            error.clone().unwrap_or(status)
        ))),
    }
}

async fn deliveries(context: &CommandContext, args: Deliveries) -> Result<(), Failure> {
    let listing = args.part.listing();
    let query = DeliveriesQuery {
        state: args.state,
        limit: listing.limit,
        cursor: listing.cursor,
        min_position: None,
    };
    let page = context.client.webhook_deliveries(&args.webhook, &query).await?;
    context.screen.print_list(&page.items, "No deliveries.", |_| {
        let mut table = Table::new([
            "position",
            "topic",
            "state",
            "attempts",
            "status",
            "next attempt",
            "error",
        ]);
        for delivery in &page.items {
            table.row([
                delivery.position.to_string(),
                delivery.topic.clone(),
                delivery.state.clone(),
                delivery.attempts.to_string(),
                delivery.status.map(|status| status.to_string()).unwrap_or_default(),
                delivery.next_attempt_at.as_ref().map(moment).unwrap_or_default(),
                delivery.error.clone().unwrap_or_default(),
            ]);
        }
        table
    })?;
    context.more(page.next.as_deref());
    Ok(())
}

async fn replay(context: &CommandContext, args: Replay) -> Result<(), Failure> {
    let Replay { webhook, state, from, to } = args;
    let body = ReplayDeliveries { state, from_position: from, to_position: to };
    let replayed = context.client.replay_webhook(&webhook, &body).await?;
    context.screen.print_one(&replayed, |_| match replayed.deliveries {
        0 => "No deliveries match.\n".into(),
        1 => format!("Sending 1 delivery of {webhook} again.\n"),
        count => format!("Sending {count} deliveries of {webhook} again.\n"),
    })
}
