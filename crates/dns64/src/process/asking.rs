//! `dns64d status` and `dns64d explain`: what a running server says of itself.

use std::path::{Path, PathBuf};

use clap::Args;

use super::output::{print, print_visible};
use crate::config::{CONTROL_SOCKET, ConfigError, control_socket};
use crate::control::client::ask;
use crate::control::protocol::{Answer, Request, Subject};
use crate::control::words;

/// Whom to ask, and how to show the answer.
#[derive(Debug, Args)]
pub(super) struct Asked {
    /// The server's socket [default: that of the configuration, or /run/dns64d/control.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The server does not understand what is asked: why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct BadQuestion(String);

/// Prints what is in use.
///
/// # Errors
/// If the configuration cannot be read, or nobody answers.
pub(super) fn status(file: Option<&Path>, asked: &Asked) -> anyhow::Result<()> {
    match answer(file, asked, &Request::Status)? {
        Answer::Status(status) if asked.json => show_json(&status),
        Answer::Status(status) => Ok(print_visible(&words::status(&status))?),
        other => Err(unexpected(other)),
    }
}

/// Prints why a query is answered as it is.
///
/// # Errors
/// If the configuration cannot be read, nobody answers, or there is no such query.
pub(super) fn explain(file: Option<&Path>, asked: &Asked, subject: Subject) -> anyhow::Result<()> {
    match answer(file, asked, &Request::Explain(subject))? {
        Answer::Explanation(explained) if asked.json => show_json(&explained),
        Answer::Explanation(explained) => Ok(print_visible(&words::explanation(&explained))?),
        other => Err(unexpected(other)),
    }
}

fn answer(file: Option<&Path>, asked: &Asked, request: &Request) -> anyhow::Result<Answer> {
    let socket = match &asked.socket {
        Some(socket) => socket.clone(),
        None => configured(file)?.unwrap_or_else(|| CONTROL_SOCKET.into()),
    };
    Ok(ask(&socket, request)?)
}

/// The socket that the configuration names.
fn configured(file: Option<&Path>) -> Result<Option<PathBuf>, ConfigError> {
    file.map(control_socket).transpose().map(Option::flatten)
}

fn show_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(print(&text)?)
}

/// What is no answer to the question.
fn unexpected(answer: Answer) -> anyhow::Error {
    match answer {
        Answer::Error(why) => BadQuestion(why).into(),
        Answer::Status(_) | Answer::Explanation(_) => {
            anyhow::anyhow!("the server answers another question")
        }
    }
}
