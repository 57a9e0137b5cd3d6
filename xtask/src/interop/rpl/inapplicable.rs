//! Scenarios that do not apply to dns64d, each with the reason.

/// Returns the reason why a scenario does not apply, or `None` if it is run.
pub(super) fn reason(name: &str) -> Option<&'static str> {
    SCENARIOS.iter().find(|(scenario, _)| *scenario == name).map(|(_, reason)| *reason)
}

const SCENARIOS: &[(&str, &str)] = &[];
