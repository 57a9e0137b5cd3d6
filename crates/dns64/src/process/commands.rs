//! Commands for a running server: `status`, `explain`, `reload`, `flush`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::output::{print, print_visible};
use crate::config::{CONTROL_SOCKET, ConfigError, control_socket};
use crate::control::client::ask;
use crate::control::protocol::{Answer, Request, Subject};
use crate::control::{ReloadOutcome, text};

/// Options of the commands for a running server: control socket and output format.
#[derive(Debug, Args)]
pub(super) struct ControlOptions {
    /// Path of the control socket at which the running server accepts commands [default: the key `socket` of
    /// `[control]` in the --config file, or /run/dns64d/control.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print the server's answer as one JSON object
    #[arg(long)]
    json: bool,
}

/// The reason why the server rejected the request.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct RejectedRequest(String);

/// Prints the status of a running server.
///
/// # Errors
/// Returns an error if the configuration cannot be read, or no server answers.
pub(super) fn status(file: Option<&Path>, asked: &ControlOptions) -> anyhow::Result<()> {
    match answer(file, asked, &Request::Status)? {
        Answer::Status(status) if asked.json => show_json(&status),
        Answer::Status(status) => Ok(print_visible(&text::status(&status))?),
        other => Err(unexpected(other)),
    }
}

/// Prints the explanation of the reply to a query.
///
/// # Errors
/// Returns an error if the configuration cannot be read, no server answers, or the query is not valid.
pub(super) fn explain(
    file: Option<&Path>,
    asked: &ControlOptions,
    subject: Subject,
) -> anyhow::Result<()> {
    match answer(file, asked, &Request::Explain(subject))? {
        Answer::Explanation(explained) if asked.json => show_json(&explained),
        Answer::Explanation(explained) => Ok(print_visible(&text::explanation(&explained))?),
        other => Err(unexpected(other)),
    }
}

/// Requests a reload of the configuration, and prints the result. Returns the exit status.
///
/// # Errors
/// Returns an error if the configuration cannot be read, or no server answers.
pub(super) fn reload(file: Option<&Path>, asked: &ControlOptions) -> anyhow::Result<u8> {
    let report = match answer(file, asked, &Request::Reload)? {
        Answer::Reloaded(report) => report,
        other => return Err(unexpected(other)),
    };
    if asked.json {
        show_json(&report)?;
    } else {
        print(text::reload(&report).as_bytes())?;
        for warning in &report.warnings {
            print_error_line!("dns64d: warning: {warning}");
        }
        if let Some(error) = &report.error {
            print_error_line!(
                "dns64d: reload rejected, the old configuration stays in effect: {error}"
            );
        }
    }
    Ok(match report.outcome {
        ReloadOutcome::InEffect => 0,
        ReloadOutcome::NeedsRestart => 1,
        ReloadOutcome::Refused => 2,
    })
}

/// Removes a name and all names below it, or all names, from the server's cache. Prints the number
/// of removed answers.
///
/// # Errors
/// Returns an error if the configuration cannot be read, no server answers, or the name is not valid.
pub(super) fn flush(
    file: Option<&Path>,
    asked: &ControlOptions,
    name: Option<String>,
) -> anyhow::Result<()> {
    let request = name.map_or(Request::FlushAll, |name| Request::Flush { name });
    match answer(file, asked, &request)? {
        Answer::Flushed(report) if asked.json => show_json(&report),
        Answer::Flushed(report) => Ok(print(text::flush(&report).as_bytes())?),
        other => Err(unexpected(other)),
    }
}

fn answer(
    file: Option<&Path>,
    asked: &ControlOptions,
    request: &Request,
) -> anyhow::Result<Answer> {
    let socket = match &asked.socket {
        Some(socket) => socket.clone(),
        None => configured(file)?.unwrap_or_else(|| CONTROL_SOCKET.into()),
    };
    Ok(ask(&socket, request)?)
}

/// Returns the path of the control socket in the configuration file.
fn configured(file: Option<&Path>) -> Result<Option<PathBuf>, ConfigError> {
    file.map(control_socket).transpose().map(Option::flatten)
}

fn show_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(print(&text)?)
}

/// Returns the error for an answer that is an error message or does not match the request.
fn unexpected(answer: Answer) -> anyhow::Error {
    match answer {
        Answer::Error(why) => RejectedRequest(why).into(),
        _ => anyhow::anyhow!("the server answered another request"),
    }
}
