//! `stead tokens`: principals, their roles and their tokens.
use std::{fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum, builder::PossibleValue};
use domain::ids::{PrincipalId, TokenId};
use schemas::{
    control::tokens::{CreateToken, RenamePrincipal, Role, TokenCreated},
    duration::parse_seconds,
};

use crate::{
    failure::Failure,
    render::{Table, moment, moment_or_dash},
    settings::{CommandContext, PageArgs, Settings},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Tokens {
    /// Create a principal with one role and a token
    #[command(after_help = "\
Examples:
  stead tokens create --name 'Ann Lee' --role approver --to-file ann.token
  stead tokens create --name 'Big Four' --role auditor --expires-in 30d

Stead shows the display name next to the principal's id, and stores the name outside the log.")]
    Create(Create),
    /// List tokens
    #[command(after_help = "Example:\n  stead tokens list")]
    List(PageArgs),
    /// Rename a principal, or delete its display name
    #[command(after_help = "\
Examples:
  stead tokens rename prn_01JD… 'Ann Lee'
  stead tokens rename prn_01JD… --forget")]
    Rename {
        /// Id of the principal, from `stead tokens list`
        principal: PrincipalId,
        /// New display name
        #[arg(required_unless_present = "forget", conflicts_with = "forget")]
        name: Option<String>,
        /// Delete the display name; only the id is shown
        #[arg(long)]
        forget: bool,
    },
    /// Revoke a token immediately
    #[command(after_help = "Example:\n  stead tokens revoke tok_01JD…")]
    Revoke {
        /// Id of the token, not its secret value
        token: TokenId,
    },
    /// Grant a role to a principal
    #[command(after_help = "Example:\n  stead tokens grant-role prn_01JD… --role auditor")]
    GrantRole(Change),
    /// Revoke a role from a principal
    #[command(after_help = "Example:\n  stead tokens revoke-role prn_01JD… --role approver")]
    RevokeRole(Change),
}

#[derive(Debug, Args)]
pub(crate) struct Change {
    /// Id of the principal, from `stead tokens list`
    principal: PrincipalId,
    /// Name of the role
    #[arg(long, value_enum)]
    role: RoleArg,
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Display name of the principal; `stead tokens rename` changes it
    #[arg(long)]
    name: Option<String>,
    /// Role of the principal
    #[arg(long, value_enum)]
    role: RoleArg,
    /// Lifetime: 90m, 12h, 30d [default: until revoked]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    expires_in: Option<u64>,
    /// Write the token to this new file (mode 0600) instead of the terminal
    #[arg(long, value_name = "FILE")]
    to_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy)]
enum RoleArg {
    Owner,
    Approver,
    Auditor,
    Viewer,
}

impl ValueEnum for RoleArg {
    fn value_variants<'a>() -> &'a [RoleArg] {
        &[RoleArg::Owner, RoleArg::Approver, RoleArg::Auditor, RoleArg::Viewer]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.word()).help(Role::from(*self).summary()))
    }
}

impl RoleArg {
    fn word(self) -> &'static str {
        match self {
            RoleArg::Owner => "owner",
            RoleArg::Approver => "approver",
            RoleArg::Auditor => "auditor",
            RoleArg::Viewer => "viewer",
        }
    }
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::Owner => Role::Owner,
            RoleArg::Approver => Role::Approver,
            RoleArg::Auditor => Role::Auditor,
            RoleArg::Viewer => Role::Viewer,
        }
    }
}

pub(crate) async fn run(verb: Tokens, settings: &Settings) -> Result<(), Failure> {
    let context = settings.context()?;
    match verb {
        Tokens::Create(create) => self::create(&context, create).await,
        Tokens::List(part) => list(&context, part).await,
        Tokens::Rename { principal, name, .. } => {
            let request = RenamePrincipal { name };
            let done = context.client.name_principal(principal, &request).await?;
            context.screen.print_one(&done, |_| match (&request.name, done.changed) {
                (Some(name), true) => format!("Renamed {principal} to {name}\n"),
                (Some(name), false) => {
                    format!("No change: the name of {principal} is already {name}\n")
                }
                (None, true) => format!("Deleted the name of {principal}\n"),
                (None, false) => format!("No change: {principal} has no name\n"),
            })
        }
        Tokens::Revoke { token } => {
            let done = context.client.revoke_token(token).await?;
            context.screen.print_one(&done, |_| match done.changed {
                true => format!("Revoked {token}\n"),
                false => format!("No change: {token} is already revoked\n"),
            })
        }
        Tokens::GrantRole(Change { principal, role }) => {
            let done = context.client.grant_role(principal, role.word()).await?;
            let role = role.word();
            context.screen.print_one(&done, |_| match done.changed {
                true => format!("Granted {role} to {principal}\n"),
                false => format!("No change: {principal} already has the role {role}\n"),
            })
        }
        Tokens::RevokeRole(Change { principal, role }) => {
            let done = context.client.revoke_role(principal, role.word()).await?;
            let role = role.word();
            context.screen.print_one(&done, |_| match done.changed {
                true => format!("Revoked {role} from {principal}\n"),
                false => format!("No change: {principal} does not have the role {role}\n"),
            })
        }
    }
}

async fn create(context: &CommandContext, create: Create) -> Result<(), Failure> {
    let Create { name, role, expires_in, to_file } = create;
    // Create the file first: a token that cannot be stored must not be created.
    let created = |path: &PathBuf| {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        file.map_err(|e| Failure::Usage(format!("cannot create {}: {e}", path.display())))
    };
    let file = to_file.as_ref().map(created).transpose()?;
    let request = CreateToken { name: name.clone(), role: role.into(), expires_in_s: expires_in };
    let created = context.client.create_token(&request).await;
    let saved_to = match (&created, file.zip(to_file.as_ref())) {
        (Ok(TokenCreated { token: Some(token), .. }), Some((mut file, path))) => {
            writeln!(file, "{token}")?;
            Some(path.display().to_string())
        }
        // An empty file must not look like a token file.
        (_, Some((_, path))) => {
            std::fs::remove_file(path)?;
            None
        }
        (_, None) => None,
    };
    let mut created = created?;
    // Prints the token only if it is not in a file.
    let token = created.token.take().ok_or_else(|| secret_lost(&created))?;
    created.token = Some(token).filter(|_| saved_to.is_none());
    context.screen.print_one(&created, |_| {
        let name = name.map(|name| format!("{name}, ")).unwrap_or_default();
        let mut text = format!("Created token {} for {name}{}\n", created.id, created.principal);
        match (&created.token, saved_to) {
            (Some(token), _) => {
                text += &format!("{token}\nStore this token now. It is not shown again.\n")
            }
            (None, Some(file)) => text += &format!("Wrote the token to {file}\n"),
            (None, None) => {}
        }
        text
    })
}

/// Error for a repeated request: only the first response contains the token.
fn secret_lost(created: &TokenCreated) -> Failure {
    let id = created.id;
    Failure::Outcome(format!(
        "cannot show the token {id}: its secret was lost with the first response; revoke it \
         (stead tokens revoke {id}) and create another token"
    ))
}

async fn list(context: &CommandContext, part: PageArgs) -> Result<(), Failure> {
    let page = context.client.tokens(&part.listing()).await?;
    context.screen.print_list(&page.items, "No tokens.", |screen| {
        let mut table =
            Table::new(["NAME", "ROLES", "STATE", "TOKEN", "PRINCIPAL", "ISSUED", "EXPIRES"]);
        for token in &page.items {
            table.row([
                token.name.clone().unwrap_or_default(),
                token.roles.join(","),
                screen.state(&token.state),
                token.id.to_string(),
                token.principal.to_string(),
                moment(&token.issued_at),
                moment_or_dash(token.expires_at.as_ref()),
            ]);
        }
        table
    })?;
    context.more(page.next.as_deref());
    Ok(())
}
