//! Errors that end a campaign.

use hosts::host::HostError;
use units::Qps;

use crate::archive::ArchiveError;
use crate::results::FailedSelfTest;
use crate::runner::deployment::DeploymentError;
use crate::runner::running_servers::ServerError;

/// Error that ended a campaign.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CampaignError {
    /// The run folder cannot be used. Its contents are intact.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The hosts cannot be prepared.
    #[error(transparent)]
    Deployment(#[from] DeploymentError),
    /// A host is no longer reachable.
    #[error(transparent)]
    Host(HostError),
    /// The plan cannot be executed: programs or CPUs are missing, or the version of a server has
    /// changed.
    #[error("the plan cannot be executed:\n  {}", .0.join("\n  "))]
    Impossible(Vec<String>),
    /// None of the DUTs could be started. Nothing was measured.
    #[error("no server started\n{}", .0.iter().map(ServerError::with_log).collect::<Vec<_>>().join("\n"))]
    NotReady(Vec<ServerError>),
    /// A DUT does not start, or is no longer running.
    #[error(transparent)]
    Testbed(ServerError),
    /// AuthDNS does not start, or exits during a trial.
    #[error("{0}")]
    Auth(String),
    /// The CPU time needed to send a query could not be measured on the tester's host.
    #[error("cannot measure the cost of sending on the tester's host: {0}")]
    Tester(String),
    /// The tester could not execute a trial.
    #[error("the trial{} could not be executed: {why}", .rate.map_or(String::new(), |rate| format!(" at {rate} queries/s")))]
    Trial {
        /// Rate of the trial, queries per second; `None` if the trial has no rate.
        rate: Option<Qps>,
        /// The error that the tester reported.
        why: String,
        /// True if the error is in the plan.
        is_usage: bool,
    },
    /// A self-test failed, and the campaign was started without `--keep-going`.
    #[error("{0}; without a passed self-test every result is a lower bound")]
    SelfTest(Box<FailedSelfTest>),
    /// The user interrupted the campaign.
    #[error("interrupted")]
    Interrupted,
}

impl From<HostError> for CampaignError {
    fn from(error: HostError) -> CampaignError {
        match error {
            HostError::Interrupted => CampaignError::Interrupted,
            other => CampaignError::Host(other),
        }
    }
}

impl From<ServerError> for CampaignError {
    /// Converts an error that occurred when a server was started or controlled. An error of the host or of the run
    /// folder becomes a campaign error of the same kind.
    fn from(error: ServerError) -> CampaignError {
        match error {
            ServerError::Host(error) => error.into(),
            ServerError::Archive(error) => error.into(),
            other => CampaignError::Testbed(other),
        }
    }
}
