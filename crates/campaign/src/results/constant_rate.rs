//! Results at constant rates.

use serde::{Deserialize, Serialize};
use units::Qps;

use crate::plan::{Cores, Point};
use crate::results::no_result::NoResult;
use crate::results::sustained::{self, Sustained};
use crate::sequence::{Recorded, block_of};

/// Result of the trials at a constant rate.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ConstantRateResult {
    /// CPU placement of the DUT.
    #[serde(flatten)]
    pub place: Cores,
    /// Offered rate, queries per second.
    pub rate: Qps,
    /// Result of the trials at the offered rate.
    #[serde(flatten)]
    pub found: Sustained,
}

/// Returns the reason why the measurement point has no result, or `None` if it has a result.
pub(crate) fn missing(recorded: &Recorded<'_>, point: &Point) -> Option<NoResult> {
    result(recorded, point)?.found.missing
}

/// Returns the result of the trials at a constant rate.
pub(super) fn result(recorded: &Recorded<'_>, point: &Point) -> Option<ConstantRateResult> {
    let Point::ConstantRate(at) = point else { return None };
    let block = block_of(recorded.plan, point)?;
    let replay = recorded.replay(point);
    let lengths = (block.transient.as_secs_f64(), block.duration.as_secs_f64());
    Some(ConstantRateResult {
        place: at.place.clone(),
        rate: at.rate,
        found: sustained::result(recorded, point, replay.as_ref(), lengths),
    })
}
